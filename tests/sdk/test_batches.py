"""The simulated batch APIs as the providers' own SDKs use them: what our client is tested with must be something that
others' clients take for the provider."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from referee import clock
from referee.sim import BatchSpec, ProviderSpec, start_server_process


@pytest.fixture
def base() -> Iterator[str]:
    """The base URL of a provider some of whose items fail or expire."""
    spec = ProviderSpec(batch=BatchSpec(process_s=0.1, expire_share=0.2, error_share=0.2))
    with start_server_process(spec) as server:
        yield server.url.removesuffix("/chat/completions")


def body(number: int) -> dict[str, Any]:
    text = f"Score from 1 to 10.\n<<<response ab\n[[quality={number}]]\nab response>>>"
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}


def test_openai(base: str) -> None:
    """Upload, create, retrieve, list and read both files."""
    client = openai.OpenAI(api_key="x", base_url=base)
    lines = [
        {"custom_id": f"i{n}", "method": "POST", "url": "/v1/chat/completions", "body": body(n)} for n in range(1, 9)
    ]
    file = client.files.create(file=("a.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"referee": "t"}
    )
    while batch.status not in ("completed", "expired"):
        clock.pause(0.05)
        batch = client.batches.retrieve(batch.id)
    counts = batch.request_counts
    assert (counts.total, counts.completed + counts.failed, batch.metadata) == (8, 8, {"referee": "t"})
    found = "".join(client.files.content(name).text for name in (batch.output_file_id, batch.error_file_id) if name)
    assert {json.loads(line)["custom_id"] for line in found.splitlines()} == {line["custom_id"] for line in lines}
    assert [one.id for one in client.batches.list(limit=5)] == [batch.id]


def test_anthropic(base: str) -> None:
    """Create, retrieve and list; the results by their address here, as `results_url` is elsewhere on purpose."""
    client = anthropic.Anthropic(api_key="x", base_url=base.removesuffix("/v1"))
    batch = client.messages.batches.create(requests=[{"custom_id": f"i{n}", "params": body(n)} for n in range(1, 9)])
    while batch.processing_status != "ended":
        clock.pause(0.05)
        batch = client.messages.batches.retrieve(batch.id)
    counts = batch.request_counts
    assert counts.succeeded + counts.errored + counts.expired == 8
    assert [one.id for one in client.messages.batches.list(limit=5)] == [batch.id]
    with urllib.request.urlopen(f"{base}/messages/batches/{batch.id}/results") as stream:
        types = [json.loads(line)["result"]["type"] for line in stream]
    assert len(types) == 8
