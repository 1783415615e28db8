"""Spans of judge calls: by the GenAI conventions, without text unless asked, nothing at all when off."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from referee.config import Config, load
from referee.errors import ConfigError
from referee.records import Sample
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.scoring.local import BuildWorker
from referee.scoring.tracing import open_tracer
from referee.sim import Provider, ProviderSpec, SimTransport

trace = pytest.importorskip("opentelemetry.trace")
pytest.importorskip("opentelemetry.sdk.trace")

KEY = "sk-canary-0123456789abcdef"
SAMPLES = [Sample(prompt="a question", response=f"[[quality={n + 1}]] answer", id=f"s{n}", step=7) for n in range(3)]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Spans kept in memory, by a provider of this test alone."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return memory


def judged(otel: dict[str, Any], spec: ProviderSpec | None = None, **sections: Any) -> None:
    """Three samples through a Referee on the simulated provider, twice: the second time from the cache."""
    config = load(
        {
            "endpoint": {"url": "https://sim.test:8000/v1", "model": "asked-for", "key_env": "JUDGE_KEY"},
            "cache": {"path": ""},
            "otel": otel,
            **sections,
        }
    )
    with Referee(config, builder(spec or ProviderSpec(key=KEY))) as referee:
        referee.score(SAMPLES)
        referee.score(SAMPLES)


def builder(spec: ProviderSpec) -> BuildWorker:
    return worker_with(lambda: SimTransport(Provider(spec, 1)))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)


def test_a_span_for_each_call_and_none_for_the_cache(exporter: Any) -> None:
    """Three calls, three spans with the conventions' names; three cache hits, none."""
    judged({"enabled": True})
    spans = exporter.get_finished_spans()
    assert len(spans) == 3
    for span in spans:
        found = dict(span.attributes)
        assert span.name == "chat asked-for"
        assert span.kind is trace.SpanKind.CLIENT
        assert found["gen_ai.operation.name"] == "chat"
        assert found["gen_ai.provider.name"] == "openai"
        assert found["gen_ai.request.model"] == "asked-for"
        assert found["gen_ai.response.model"]
        assert found["gen_ai.usage.input_tokens"] > 0
        assert found["gen_ai.usage.output_tokens"] > 0
        assert found["gen_ai.request.max_tokens"] == 512
        assert (found["server.address"], found["server.port"]) == ("sim.test", 8000)
        assert found["referee.attempts"] == 1
        assert found["referee.step"] == 7
        assert "error.type" not in found
        assert span.end_time >= span.start_time > 0
        (event,) = span.events
        assert event.name == "gen_ai.evaluation.result"
        assert event.attributes["gen_ai.evaluation.name"] == "score"
    assert {span.attributes["referee.sample.id"] for span in spans} == {"s0", "s1", "s2"}


def test_a_span_names_the_judge_that_asked(exporter: Any) -> None:
    """Of several judges each span has its own name and kind."""
    judges = [{"name": "quality"}, {"name": "safe", "kind": "yes_no", "weight": 0.5}]
    judged({"enabled": True}, judge=judges)
    found = {
        (span.attributes["referee.judge"], event.attributes["gen_ai.evaluation.name"])
        for span in exporter.get_finished_spans()
        for event in span.events
    }
    assert found == {("quality", "score"), ("safe", "yes_no")}


def test_a_tracer_that_fails_withholds_no_reward(exporter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span processor of the user's that raises costs its spans, and nothing waits for ever."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken processor")

    monkeypatch.setattr("referee.scoring.tracing.Tracer.settled", broken)
    config = load(
        {
            "endpoint": {"url": "https://sim.test:8000/v1", "model": "m", "key_env": "JUDGE_KEY"},
            "cache": {"path": ""},
            "otel": {"enabled": True},
        }
    )
    with Referee(config, builder(ProviderSpec(key=KEY))) as referee:
        assert all(reward.scored for reward in referee.score(SAMPLES, 50.0))


def test_text_is_left_out_unless_asked_for(exporter: Any) -> None:
    """Neither prompt nor reply nor reason by default; all of them with content = true; the key never."""
    judged({"enabled": True})
    bare = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert "a question" not in bare
    assert "quality" not in bare
    assert "gen_ai.input.messages" not in bare
    exporter.clear()
    judged({"enabled": True, "content": True})
    full = exporter.get_finished_spans()
    asked = json.loads(full[0].attributes["gen_ai.input.messages"])
    assert "a question" in asked[-1]["parts"][0]["content"]
    assert json.loads(full[0].attributes["gen_ai.output.messages"])[0]["role"] == "assistant"
    assert KEY not in bare + "".join(span.to_json() for span in full)


def test_a_call_without_a_verdict_is_an_error(exporter: Any) -> None:
    """The reason is the error's type; the status says so without text."""
    spec = ProviderSpec(faults={"refusal": 1.0})
    judged({"enabled": True}, spec, missing={"abort_above": 1.0}, judge={"ask_again": 0, "reply": "schema"})
    spans = exporter.get_finished_spans()
    assert len(spans) == 6
    for span in spans:
        assert span.attributes["error.type"] == "refused"
        assert span.status.status_code is trace.StatusCode.ERROR
        assert span.status.description == "refused"
        assert not span.events


def test_half_characters_do_not_stop_an_exporter(exporter: Any) -> None:
    """A lone surrogate in an id, which no exporter can encode, is replaced."""
    config = load(
        {"endpoint": {"url": "http://sim.test/v1", "key_env": ""}, "cache": {"path": ""}, "otel": {"enabled": True}}
    )
    with Referee(config, builder(ProviderSpec())) as referee:
        referee.score([Sample(prompt="p", response="[[quality=5]] r", id="half \ud800", group="\udfff")])
    (span,) = exporter.get_finished_spans()
    span.to_json().encode()
    assert span.attributes["referee.sample.id"] == "half ?"


def test_off_costs_nothing() -> None:
    """By default no tracer exists, and the package is not even imported."""
    assert open_tracer(Config()) is None
    code = "import sys, referee.scoring.build; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_the_package_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for and not installed: a clear error before anything is spent."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r'pip install "llm-referee\[otel\]"') as caught:
        open_tracer(load({"otel": {"enabled": True}}))
    assert caught.value.setting == "otel.enabled"
