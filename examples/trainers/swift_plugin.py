"""ms-swift: a plugin for --external_plugins, used as --reward_funcs referee. By itself: python <this file>."""

from __future__ import annotations

import asyncio
import importlib.util

from referee.trainers.swift import AsyncRefereeORM, RefereeORM, register

if importlib.util.find_spec("swift") is not None:
    register()


def main() -> None:
    """As ms-swift calls them: completions, and the conversation each belongs to; a new event loop each step."""
    from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

    texts = [GOOD, POOR, UNSCORED]
    messages = [[{"role": "user", "content": PROMPT}, {"role": "assistant", "content": text}] for text in texts]
    with simulated_judge('policy = "group_mean"'):
        print("ORM:", RefereeORM(args=None)(texts, messages=messages))
        reward = AsyncRefereeORM(args=None)
        for step in range(2):
            print(f"AsyncORM, step {step}:", asyncio.run(reward(texts, messages=messages)))


if __name__ == "__main__":
    main()
