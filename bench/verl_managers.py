"""1024 samples through verl's managers and ours, on a simulated provider. Ratios count.

    .venv-trainers/bin/python -m bench.verl_managers [--samples 1024] [--scale 5]

The provider: 2 s median, capacity 60, refuses above it; its time passes `scale` times faster. Measured: verl's naive
with a blocking judge (on a part, times the rest), verl's batch with a semaphore of 60 on
AsyncOpenAI where that is installed and on aiohttp, which costs less; verl's rate_limited told the limit; ours without
being told it, cold and with a warm cache. Each has judged a few rows elsewhere before it is measured, so that first
imports are nobody's, and each must give the same rewards.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib.util
import json
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable
from typing import Any

import aiohttp

from referee.sim import ProviderSpec, start_server_process

NAIVE = "verl naive, blocking judge"
OPENAI = "verl batch, AsyncOpenAI + semaphore 60"
AIOHTTP = "verl batch, aiohttp + semaphore 60"
LIMITED = "verl rate_limited, told 60"
COLD, WARM = "referee, cold", "referee, warm cache"
TURNS = ((NAIVE,), (OPENAI,), (AIOHTTP,), (LIMITED,), (COLD, WARM))
"""Each has a provider of its own that takes the same times for its answers in the same order."""
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


def together(ask_all: Callable[[asyncio.Semaphore, list[str]], Any], limit: int) -> Any:
    """Everything at once behind a semaphore, for `batch`."""

    def compute_score(solution_strs: list[str], **_: Any) -> list[float]:
        async def run() -> list[float]:
            found: list[float] = await ask_all(asyncio.Semaphore(limit), solution_strs)
            return found

        return asyncio.run(run())

    return compute_score


def with_aiohttp(url: str) -> Any:
    """One session for the batch, tried again when refused."""

    async def ask_all(gate: asyncio.Semaphore, texts: list[str]) -> list[float]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def one(text: str) -> float:
                async with gate:
                    return await ask(session, url, text)

            return await asyncio.gather(*(one(text) for text in texts))

    return together(ask_all, 60)


def with_openai(url: str) -> Any:
    """The client most people write it with, as it comes: its own pool, its own retries."""
    import openai  # type: ignore[import-not-found]

    async def ask_all(gate: asyncio.Semaphore, texts: list[str]) -> list[float]:
        async with openai.AsyncOpenAI(base_url=url.removesuffix("/chat/completions"), api_key="none") as client:

            async def one(text: str) -> float:
                messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": text}]
                async with gate:
                    found = await client.chat.completions.create(model="m", messages=messages, temperature=0.0)
                return 1.0 + float(found.choices[0].message.content)

            return await asyncio.gather(*(one(text) for text in texts))

    return together(ask_all, 60)


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


class Managers:
    """Every way to judge a batch on one provider. Each returns the sum of its rewards."""

    def __init__(self, url: str, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from verl.workers.reward_manager import get_reward_manager_cls
        from referee.trainers.verl import LengthPenaltyRewardManager

        self._url = url
        self._tokenizer = _Letters()
        self._find = get_reward_manager_cls
        keys = {
            "enable_openai_reward": True,
            "api_endpoint": url,
            "system_prompt": PROMPT,
            "use_async_io": True,
            "max_concurrent_requests": 512,
            "referee": {"cache": {"path": f"{folder}/cache.sqlite"}},
        }
        self._ours = LengthPenaltyRewardManager(self._tokenizer, 0, lambda **_: 1.0, length_penalty_config=keys)

    def ways(self) -> dict[str, Callable[[Any], float]]:
        """By name."""
        batch = {OPENAI: with_openai, AIOHTTP: with_aiohttp}
        if importlib.util.find_spec("openai") is None:
            del batch[OPENAI]
        return {
            NAIVE: self._verls("naive", blocking(self._url)),
            **{name: self._verls("batch", judge(self._url)) for name, judge in batch.items()},
            LIMITED: lambda data: asyncio.run(self._rate_limited(data)),
            COLD: self._judge,
            WARM: self._judge,
        }

    def close(self) -> None:
        """Let our judge go."""
        self._ours.shutdown_workers()

    def _judge(self, data: Any) -> float:
        return float(self._ours(data).sum())

    def _verls(self, name: str, compute_score: Any) -> Callable[[Any], float]:
        manager = self._find(name)(tokenizer=self._tokenizer, num_examine=0, compute_score=compute_score)
        return lambda data: float(manager(data).sum())

    async def _rate_limited(self, data: Any) -> float:
        from omegaconf import OmegaConf
        from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def judge(solution_str: str, **_: Any) -> float:
                return await ask(session, self._url, solution_str)

            config = OmegaConf.create({"reward": {"max_concurrent": 60, "timeout": 300.0}, "trainer": {}})
            kind = get_reward_manager_cls("rate_limited")
            made = kind(config=config, tokenizer=self._tokenizer, compute_score=judge)
            rows = [data[index : index + 1] for index in range(len(data))]
            return float(sum(row["reward_score"] for row in await asyncio.gather(*map(made.run_single, rows))))


def measure(samples: int, scale: float, seed: int = 1) -> dict[str, float]:
    """Seconds of each way, of the whole batch. `seed`: which latencies the provider draws, the same for each way."""
    spec = ProviderSpec(latency_median=2.0, latency_sigma=0.3, capacity=60, time_scale=scale)
    took: dict[str, float] = {}
    _each(
        ProviderSpec(), seed, 8, lambda name, run: run(), but=LIMITED
    )  # that one keeps the first event loop it ran on

    def timed(name: str, run: Callable[[], float]) -> float:
        began = time.perf_counter()
        total = run()
        took[name] = (time.perf_counter() - began) * (NAIVE_PART if name == NAIVE else 1.0)
        print(f"{name:40} {took[name]:8.2f} s", flush=True)
        return total

    _each(spec, seed, samples, timed)
    return took


def _each(
    spec: ProviderSpec, seed: int, samples: int, watch: Callable[[str, Callable[[], float]], float], but: str = ""
) -> None:
    """Every way `but` one in turn, under the eyes of `watch`; wrong rewards are an error."""
    qualities = [number % 10 + 1 for number in range(samples)]
    data = _batch([f"response {number} [[quality={quality}]]" for number, quality in enumerate(qualities)])
    part = max(1, samples // NAIVE_PART)
    for turn in TURNS:
        with start_server_process(spec, seed=seed) as server, tempfile.TemporaryDirectory() as folder:
            managers = Managers(server.url, folder)
            ways = managers.ways()
            try:
                for name in turn:
                    if name not in ways or name == but:
                        continue
                    count = part if name == NAIVE else samples
                    total = watch(name, functools.partial(ways[name], data[:count]))
                    if round(total) != count + sum(qualities[:count]):
                        raise RuntimeError(f"{name}: rewards add up to {total}, not {count + sum(qualities[:count])}")
            finally:
                managers.close()


def ratios(took: dict[str, float]) -> tuple[float, float, float]:
    """How many times faster than naive we are, cold and warm; and cold beside the best of verl's told the limit."""
    best = min(seconds for name, seconds in took.items() if name.startswith("verl") and name != NAIVE)
    return took[NAIVE] / took[COLD], took[NAIVE] / took[WARM], best / took[COLD]


def main() -> None:
    """Measure and say the ratios."""
    arguments = argparse.ArgumentParser(description="verl's managers beside ours")
    arguments.add_argument("--samples", type=int, default=1024)
    arguments.add_argument("--scale", type=float, default=5.0)
    given = arguments.parse_args()
    cold, warm, beside = ratios(measure(given.samples, given.scale))
    print(f"cold: {cold:.1f}x naive (goal 20), {beside:.2f}x the best of verl's (goal 1)")
    print(f"warm: {warm:.0f}x naive (goal 100)")


if __name__ == "__main__":
    main()
