"""1024 samples through verl's managers and ours, on a simulated provider of document 003's shape. Ratios count.

    .venv-trainers/bin/python -m bench.verl_managers [--samples 1024] [--scale 20]

The provider: 2 s median, capacity 60, refuses above it; its time passes `scale` times faster. Measured: verl's naive
with a blocking judge (on a part, times the rest), verl's batch with a semaphore of 60 as document 003 has it, verl's
rate_limited told the limit, ours without being told it, cold and with a warm cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import urllib.request
import warnings
from typing import Any

import aiohttp

from referee.sim import ProviderSpec, start_server_process

PROMPT = "You grade texts. Reply with one integer from 1 to 10 and nothing else."
NAIVE_PART = 64
"""Of how many samples the naive manager is given one: it judges one after another, so the rest takes as long each."""


def body(text: str) -> bytes:
    """One request of the hand-written judges."""
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages, "temperature": 0.0}).encode()


def blocking(url: str) -> Any:
    """A judge inside a plain function, as users write it for `naive`."""

    def compute_score(solution_str: str, **_: Any) -> float:
        request = urllib.request.Request(url, body(solution_str), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return 1.0 + float(json.load(answer)["choices"][0]["message"]["content"])

    return compute_score


async def ask(session: Any, url: str, text: str) -> float:
    """One call, tried again when it is refused."""
    while True:
        async with session.post(url, data=body(text), headers={"content-type": "application/json"}) as answer:
            if answer.status == 200:
                return 1.0 + float((await answer.json())["choices"][0]["message"]["content"])
        await asyncio.sleep(0.05)


def gathered(url: str, limit: int) -> Any:
    """Document 003: everything at once behind a semaphore, for `batch`."""

    def compute_score(solution_strs: list[str], **_: Any) -> list[float]:
        async def run() -> list[float]:
            gate = asyncio.Semaphore(limit)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

                async def one(text: str) -> float:
                    async with gate:
                        return await ask(session, url, text)

                return await asyncio.gather(*(one(text) for text in solution_strs))

        return asyncio.run(run())

    return compute_score


class _Letters:
    """A tokenizer of one token per character: decoding costs all managers the same, and next to nothing."""

    pad_token_id = 0

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids.tolist()))


def _batch(texts: list[str]) -> Any:
    """The texts as a DataProto, eight rollouts to a prompt."""
    import numpy as np
    import torch
    from verl import DataProto

    count, width = len(texts), max(map(len, texts))
    responses = torch.tensor([[*map(ord, text), *[0] * (width - len(text))] for text in texts])
    prompts = torch.full((count, 1), ord("?"))
    mask = torch.cat([torch.ones((count, 1), dtype=torch.long), (responses != 0).long()], dim=1)
    columns = {
        "uid": [str(number // 8) for number in range(count)],
        "data_source": ["bench"] * count,
        "reward_model": [{"ground_truth": ""} for _ in texts],
        "extra_info": [{} for _ in texts],
    }
    return DataProto.from_dict(
        tensors={"prompts": prompts, "responses": responses, "attention_mask": mask},
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
    )


def measure(samples: int, scale: float) -> dict[str, float]:
    """Seconds of each way, of the whole batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from omegaconf import OmegaConf
        from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls as loop_manager
        from verl.workers.reward_manager import get_reward_manager_cls
    from referee.trainers.verl import LengthPenaltyRewardManager

    tokenizer = _Letters()
    texts = [f"response {number} [[quality={number % 10 + 1}]]" for number in range(samples)]
    data = _batch(texts)
    spec = ProviderSpec(latency_median=2.0, latency_sigma=0.3, capacity=60, time_scale=scale)
    took: dict[str, float] = {}

    def timed(name: str, run: Any, factor: float = 1.0) -> None:
        began = time.perf_counter()
        run()
        took[name] = (time.perf_counter() - began) * factor
        print(f"{name:34} {took[name]:8.2f} s", flush=True)

    with start_server_process(spec) as server:
        naive = get_reward_manager_cls("naive")(tokenizer=tokenizer, num_examine=0, compute_score=blocking(server.url))
        timed("verl naive, blocking judge", lambda: naive(data[: samples // NAIVE_PART]), NAIVE_PART)
        batch = get_reward_manager_cls("batch")(
            tokenizer=tokenizer, num_examine=0, compute_score=gathered(server.url, 60)
        )
        timed("verl batch, semaphore 60", lambda: batch(data))

        async def rate_limited() -> None:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

                async def judge(solution_str: str, **_: Any) -> float:
                    return await ask(session, server.url, solution_str)

                config = OmegaConf.create({"reward": {"max_concurrent": 60, "timeout": 300.0}, "trainer": {}})
                made = loop_manager("rate_limited")(config=config, tokenizer=tokenizer, compute_score=judge)
                await asyncio.gather(*(made.run_single(data[i : i + 1]) for i in range(samples)))

        timed("verl rate_limited, told 60", lambda: asyncio.run(rate_limited()))
        with tempfile.TemporaryDirectory() as folder:
            keys = {
                "enable_openai_reward": True,
                "api_endpoint": server.url,
                "system_prompt": PROMPT,
                "use_async_io": True,
                "max_concurrent_requests": 512,
                "referee": {"cache": {"path": f"{folder}/cache.sqlite"}},
            }
            ours = LengthPenaltyRewardManager(tokenizer, 0, lambda **_: 1.0, length_penalty_config=keys)
            timed("referee, cold", lambda: ours(data))
            timed("referee, warm cache", lambda: ours(data))
            ours.shutdown_workers()
    return took


def main() -> None:
    """Measure and say the ratios."""
    arguments = argparse.ArgumentParser(description="verl's managers beside ours")
    arguments.add_argument("--samples", type=int, default=1024)
    arguments.add_argument("--scale", type=float, default=20.0)
    given = arguments.parse_args()
    took = measure(given.samples, given.scale)
    cold, warm, naive = took["referee, cold"], took["referee, warm cache"], took["verl naive, blocking judge"]
    best = min(took["verl batch, semaphore 60"], took["verl rate_limited, told 60"])
    print(f"cold: {naive / cold:.1f}x naive (asked 20), {best / cold:.2f}x the best of verl's (asked 1)")
    print(f"warm: {naive / warm:.0f}x naive (asked 100)")


if __name__ == "__main__":
    main()
