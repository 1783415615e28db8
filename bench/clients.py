"""Other people's clients, each alone in a process: `python clients.py <name> <url> <count> <in flight>`.

Runs in an interpreter of its own (BENCH_PYTHON, packages in requirements-clients.txt), so it imports nothing of ours.
It sends the same kind of request again and again and prints JSON: processor and wall seconds, and answers received.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

PROMPT = "Judge this answer on a scale from 1 to 10. Reply with JSON: reason, score. " + (
    "The answer weighs the evidence and comes to a conclusion in a few plain sentences. " * 16
)


def messages(n: int) -> list[dict[str, str]]:
    """A request of about 1.4 KB, no two alike."""
    return [{"role": "user", "content": f"{n} {PROMPT}"}]


def score(text: str) -> int:
    """What a reward function does with the answer."""
    return int(json.loads(text)["score"])


async def every(count: int, at_once: int, ask: Any) -> int:
    """Gather under a semaphore, the usual way."""
    gate = asyncio.Semaphore(at_once)

    async def one(n: int) -> int:
        async with gate:
            return score(await ask(n))

    return len(await asyncio.gather(*(one(n) for n in range(count))))


def openai_client(base: str, at_once: int, aiohttp_backend: bool) -> Any:
    """AsyncOpenAI with a pool as large as what is in flight."""
    import httpx
    import openai  # type: ignore[import-not-found]

    if aiohttp_backend:
        http: Any = openai.DefaultAioHttpClient()
    else:
        http = openai.DefaultAsyncHttpxClient(limits=httpx.Limits(max_connections=at_once))
    return openai.AsyncOpenAI(base_url=base, api_key="none", http_client=http, max_retries=0, timeout=120.0)


async def with_openai(base: str, count: int, at_once: int, backend: bool = False) -> int:
    """AsyncOpenAI + semaphore + gather."""
    client = openai_client(base, at_once, backend)

    async def ask(n: int) -> str:
        found = await client.chat.completions.create(model="simulated", messages=messages(n), max_tokens=64)
        return str(found.choices[0].message.content)

    return await every(count, at_once, ask)


async def with_openai_aiohttp(base: str, count: int, at_once: int) -> int:
    """The same on the SDK's aiohttp backend."""
    return await with_openai(base, count, at_once, True)


async def with_litellm(base: str, count: int, at_once: int) -> int:
    """litellm.acompletion + semaphore + gather."""
    import litellm  # type: ignore[import-not-found]

    async def ask(n: int) -> str:
        found = await litellm.acompletion(
            model="openai/simulated", messages=messages(n), api_base=base, api_key="none", max_tokens=64, num_retries=0
        )
        return str(found.choices[0].message.content)

    return await every(count, at_once, ask)


async def with_langchain(base: str, count: int, at_once: int) -> int:
    """ChatOpenAI.abatch."""
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

    client = ChatOpenAI(model="simulated", base_url=base, api_key="none", max_retries=0, timeout=120.0)
    found = await client.abatch([messages(n) for n in range(count)], {"max_concurrency": at_once})
    return sum(score(str(message.content)) >= 0 for message in found)


async def with_inspect(base: str, count: int, at_once: int) -> int:
    """inspect_ai's model API, limit fixed."""
    from inspect_ai.model import GenerateConfig, get_model  # type: ignore[import-not-found]

    config = GenerateConfig(max_connections=at_once, max_tokens=64, max_retries=0)
    model = get_model("openai/simulated", base_url=base, api_key="none", config=config, responses_api=False)

    async def ask(n: int) -> str:
        return str((await model.generate(messages(n)[0]["content"])).completion)

    return await every(count, at_once, ask)


async def with_deluge(base: str, count: int, at_once: int) -> int:
    """lm_deluge's LLMClient."""
    import lm_deluge  # type: ignore[import-not-found]
    from lm_deluge.models import register_model  # type: ignore[import-not-found]

    register_model(id="simulated", name="simulated", api_base=base, api_key_env_var="OPENAI_API_KEY", api_spec="openai")
    limits = {"max_requests_per_minute": 10**9, "max_tokens_per_minute": 10**12}
    client = lm_deluge.LLMClient(
        "simulated", max_new_tokens=64, max_concurrent_requests=at_once, max_attempts=1, progress="manual", **limits
    )
    found = await client.process_prompts_async([messages(n)[0]["content"] for n in range(count)], show_progress=False)
    return sum(score(str(answer.completion)) >= 0 for answer in found)


CLIENTS = {
    "AsyncOpenAI + semaphore": with_openai,
    "AsyncOpenAI, aiohttp backend": with_openai_aiohttp,
    "LiteLLM acompletion": with_litellm,
    "LangChain abatch": with_langchain,
    "inspect_ai": with_inspect,
    "lm_deluge": with_deluge,
}


def main() -> None:
    """A warm-up, then the measured part, in one loop."""
    name, url, count, at_once = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    os.environ.update(
        {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_PROXY": "*"}
    )
    base = url.removesuffix("/chat/completions")

    async def both() -> dict[str, float]:
        await CLIENTS[name](base, min(count, 64), at_once)
        cpu, wall = time.process_time(), time.monotonic()
        done = await CLIENTS[name](base, count, at_once)
        return {"cpu": time.process_time() - cpu, "wall": time.monotonic() - wall, "done": done}

    sys.stdout.write("\n" + json.dumps(asyncio.run(both())) + "\n")


if __name__ == "__main__":
    main()
