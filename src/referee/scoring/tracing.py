"""OpenTelemetry spans of judge calls, by the GenAI conventions. Off by default, and then nothing is imported or made.

Spans go to whatever tracer provider the program has set up; none is set up here. No key and, unless asked for, no text
is in them.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from referee.config import Config, EndpointConfig
from referee.errors import ConfigError, install
from referee.records import Ask, Sample, Settled, Unscored, Verdict
from referee.version import VERSION

PROVIDER = "openai"
"""The API that is spoken; who is behind it, `server.address` says."""
Attributes = dict[str, str | int | float | bool | list[str]]


def open_tracer(config: Config) -> Tracer | None:
    """What makes spans, or None when they are off."""
    return Tracer(config) if config.otel.enabled else None


class Tracer:
    """One span per question that was asked; its attempts are counted in it. Cached verdicts make none."""

    def __init__(self, config: Config) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise ConfigError(
                f"otel.enabled = true needs the package opentelemetry-api: {install('otel')}, or set "
                "otel.enabled = false. Rewards do not depend on it.",
                setting="otel.enabled",
            ) from None
        self._tracer = trace.get_tracer("referee", VERSION)
        self._client = trace.SpanKind.CLIENT
        self._error = trace.StatusCode.ERROR
        self._content = config.otel.content
        self._judges = [(judge.name, judge.kind) for judge in config.judge]
        self._endpoints = {endpoint.label: _address(endpoint) for endpoint in reversed(config.endpoint)}

    def settled(self, judge: int, sample: Sample, request: Ask | None, settled: Settled, wall: float) -> None:
        """A question of this judge, by its number, has been answered or given up now, at `wall`."""
        if not settled.attempts or settled.origin not in ("call", "none"):
            return
        known = self._endpoints.get(settled.endpoint, {})
        model = known.get("gen_ai.request.model", "")
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            **known,
            **_request(request),
            **_reply(settled),
            "referee.judge": _clean(self._judges[judge][0]),
            **_sample(sample, settled),
        }
        if self._content:
            attributes |= _content(request, settled)
        begun = int(settled.sent * 1e9) or int(wall * 1e9)
        span = self._tracer.start_span(
            f"chat {model}".strip(), kind=self._client, attributes=attributes, start_time=begun
        )
        verdict = settled.verdict
        if isinstance(verdict, Unscored):
            span.set_attribute("error.type", verdict.reason.value)
            span.set_status(self._error, verdict.detail if self._content else verdict.reason.value)
        else:
            span.add_event("gen_ai.evaluation.result", self._evaluation(judge, verdict), timestamp=int(wall * 1e9))
        span.end(max(begun, int(wall * 1e9)))

    def _evaluation(self, judge: int, verdict: Verdict) -> dict[str, str | float]:
        found: dict[str, str | float] = {
            "gen_ai.evaluation.name": self._judges[judge][1],
            "gen_ai.evaluation.score.value": verdict.value,
        }
        if self._content and verdict.reason:
            found["gen_ai.evaluation.explanation"] = _clean(verdict.reason)
        return found


def _address(endpoint: EndpointConfig) -> Attributes:
    parts = urlsplit(endpoint.url)
    found: Attributes = {"gen_ai.request.model": endpoint.model, "server.address": parts.hostname or endpoint.host}
    if parts.port:
        found["server.port"] = parts.port
    return found


def _request(request: Ask | None) -> Attributes:
    if request is None:
        return {}
    found: Attributes = {"gen_ai.request.max_tokens": request.sampling.max_tokens}
    if request.sampling.temperature is not None:
        found["gen_ai.request.temperature"] = request.sampling.temperature
    return found


def _reply(settled: Settled) -> Attributes:
    reply = settled.reply
    if reply is None:
        return {}
    found: Attributes = {
        "gen_ai.usage.input_tokens": settled.tokens_in,
        "gen_ai.usage.output_tokens": settled.tokens_out,
    }
    if settled.tokens_cached:
        found["gen_ai.usage.cache_read.input_tokens"] = settled.tokens_cached
    if settled.tokens_cache_write:
        found["gen_ai.usage.cache_creation.input_tokens"] = settled.tokens_cache_write
    for name, value in (("gen_ai.response.model", reply.model), ("gen_ai.response.id", reply.request_id)):
        if value:
            found[name] = _clean(value)
    if reply.finish:
        found["gen_ai.response.finish_reasons"] = [_clean(reply.finish)]
    return found


def _sample(sample: Sample, settled: Settled) -> Attributes:
    found: Attributes = {
        "referee.attempts": settled.attempts,
        "referee.queued_s": settled.queued_s,
        "referee.latency_s": settled.latency_s,
        "referee.cost_usd": settled.cost,
    }
    if sample.step is not None:
        found["referee.step"] = sample.step
    for name, value in (("referee.sample.id", sample.id), ("referee.sample.group", sample.group)):
        if value:
            found[name] = _clean(value)
    return found


def _content(request: Ask | None, settled: Settled) -> Attributes:
    found: Attributes = {}
    if request is not None:
        found["gen_ai.input.messages"] = _json([_message(item.role, item.content) for item in request.messages])
    if settled.reply is not None:
        said = _message("assistant", settled.reply.text)
        found["gen_ai.output.messages"] = _json([{**said, "finish_reason": settled.reply.finish}])
    return found


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": _clean(text)}]}


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


def _clean(text: str) -> str:
    """Without halves of characters, which exporters cannot encode."""
    return text.encode("utf-8", "replace").decode()
