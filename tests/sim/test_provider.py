"""The provider as a model, in virtual time: capacity, rates, schedules, outages, faults, counting."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from referee import clock
from referee.sim.provider import Provider
from referee.sim.replies import SimResponse
from referee.sim.spec import FAULTS, Fault, ProviderSpec
from referee.sim.stats import key_label
from referee.sim.virtual import run_virtual

MakeBody = Callable[..., bytes]
Trace = list[tuple[float, int, str, bytes]]


async def send(provider: Provider, body: bytes, at: float = 0.0, trace: Trace | None = None) -> SimResponse:
    """One request at second `at`; its end is noted in `trace`."""
    await clock.sleep(at)
    answer = await provider.serve(body, {"authorization": "Bearer k"})
    if trace is not None:
        trace.append((round(clock.now(), 9), answer.status, answer.wire, answer.body))
    return answer


def run(spec: ProviderSpec, *sends: tuple[float, bytes], seed: int = 0) -> tuple[Provider, Trace]:
    """All sends against a fresh provider; what came back, in order of time."""
    provider, trace = Provider(spec, seed), Trace()

    async def main() -> None:
        await asyncio.gather(*(send(provider, body, at, trace) for at, body in sends))

    run_virtual(main())
    return provider, trace


def test_an_answer_takes_its_latency(body: MakeBody) -> None:
    """Without spread every answer takes the median."""
    _, trace = run(ProviderSpec(latency_median=2.0), (0.0, body("a")), (5.0, body("b")))
    assert [when for when, *_ in trace] == [2.0, 7.0]


def test_latency_is_lognormal_about_its_median(body: MakeBody) -> None:
    """Half the answers are faster than the median, and the spread is as asked."""
    _, trace = run(ProviderSpec(latency_median=2.0, latency_sigma=0.5), *[(0.0, body())] * 2000, seed=3)
    times = sorted(when for when, *_ in trace)
    assert times[1000] == pytest.approx(2.0, rel=0.05)
    one_deviation = times[int(2000 * 0.8413)] / times[1000]
    assert one_deviation == pytest.approx(math.exp(0.5), rel=0.05)


def test_the_tail_is_longer(body: MakeBody) -> None:
    """The given share of answers takes the given factor."""
    _, trace = run(ProviderSpec(latency_median=1.0, tail_share=0.1, tail_factor=20.0), *[(0.0, body())] * 1000)
    slow = sum(when > 19 for when, *_ in trace)
    assert 70 < slow < 130


def test_above_capacity_it_refuses(body: MakeBody) -> None:
    """mode = refuse: what does not fit gets a quick 429 with a hint, and the rest is served."""
    spec = ProviderSpec(latency_median=1.0, capacity=3, mode="refuse", refuse_latency=0.01)
    provider, trace = run(spec, *[(0.0, body())] * 5, (1.5, body()))
    assert [(when, status) for when, status, *_ in trace] == [(0.01, 429)] * 2 + [(1.0, 200)] * 3 + [(2.5, 200)]
    stats = provider.stats()
    assert (stats.received, stats.answered, stats.refused, stats.max_busy) == (6, 4, 2, 3)
    assert stats.by_fault == {"capacity": 2}


def test_above_capacity_it_queues(body: MakeBody) -> None:
    """mode = queue: first come, first served, never more at once than capacity."""
    spec = ProviderSpec(latency_median=1.0, capacity=2, mode="queue")
    provider, trace = run(spec, *[(n / 100, body(str(n))) for n in range(6)])
    assert [when for when, *_ in trace] == [1.0, 1.01, 2.0, 2.01, 3.0, 3.01]
    stats = provider.stats()
    assert (stats.max_busy, stats.max_queued, stats.max_open) == (2, 4, 6)
    assert stats.work == pytest.approx(6.0)
    assert stats.seconds == pytest.approx(3.01)


def test_a_queued_request_can_leave(body: MakeBody) -> None:
    """A client that gives up frees its place, and the one it held if it was its turn."""
    provider = Provider(ProviderSpec(latency_median=10.0, capacity=1, mode="queue"))

    async def main() -> list[float]:
        tasks = [asyncio.create_task(send(provider, body(str(n)))) for n in range(4)]
        await clock.sleep(1)
        tasks[1].cancel()  # waits
        await clock.sleep(1)
        tasks[0].cancel()  # is served, and the next in line gives up with it
        tasks[2].cancel()
        await clock.sleep(0)
        await tasks[3]
        return [clock.now(), provider.stats().busy, provider.stats().queued]

    assert run_virtual(main()) == [12.0, 0, 0]
    stats = provider.stats()
    assert (stats.received, stats.answered, stats.abandoned, stats.open) == (4, 1, 3, 0)


def test_above_the_knee_it_degrades(body: MakeBody) -> None:
    """mode = degrade: nothing is refused, all get slower."""
    spec = ProviderSpec(latency_median=1.0, capacity=2, mode="degrade")
    _, trace = run(spec, *[(0.0, body())] * 4)
    assert [when for when, *_ in trace] == [1.0, 1.0, 2.25, 4.0]


def test_capacity_follows_its_schedule(body: MakeBody) -> None:
    """A queue moves when capacity grows, and one cut in half serves half as many."""
    spec = ProviderSpec(latency_median=10.0, capacity=0, mode="queue", schedule=((5.0, 4), (14.0, 2)))
    _, trace = run(spec, *[(0.0, body())] * 8)
    assert [when for when, *_ in trace] == [15.0] * 4 + [25.0] * 2 + [35.0] * 2


def test_requests_per_minute(body: MakeBody) -> None:
    """A window serves up to its limit; the headers say when the next begins."""
    spec = ProviderSpec(rpm=2, retry_after="seconds", refuse_latency=0.0)
    _, trace = run(spec, *[(at, body()) for at in (0.0, 1.0, 2.0, 59.0, 60.0, 61.0, 62.0)])
    assert [status for _, status, *_ in trace] == [200, 200, 429, 429, 200, 200, 429]
    provider = Provider(spec)

    async def third() -> SimResponse:
        for at in (0.0, 10.0):
            await send(provider, body(), at)
        return await send(provider, body(), 10.0)

    headers = run_virtual(third()).headers
    assert headers["retry-after"] == "40"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == "40s"


def test_tokens_per_minute(body: MakeBody) -> None:
    """Prompt and reply count, whatever max_tokens was asked for."""
    sends = [(float(n), body("x" * 300, max_tokens=500)) for n in range(8)]
    for limit, passed in ((1300, 8), (250, 2)):
        _, trace = run(ProviderSpec(tpm=limit), *sends)
        assert sum(status == 200 for _, status, *_ in trace) == passed


def test_time_scale_divides_every_time(body: MakeBody) -> None:
    """The same run 64 times faster (a power of two, so nothing rounds): latency, windows, schedule, outages."""
    sends = [(float(n), body(str(n))) for n in range(80)]
    slow = ProviderSpec(
        latency_median=2.0,
        latency_sigma=0.7,
        capacity=2,
        schedule=((10.0, 1), (20.0, 5)),
        outages=((30.0, 35.0),),
        rpm=40,
        retry_after="float",
    )
    fast = ProviderSpec(**{name: getattr(slow, name) for name in slow.__struct_fields__} | {"time_scale": 64.0})
    _, one = run(slow, *sends, seed=5)
    _, two = run(fast, *[(at / 64, content) for at, content in sends], seed=5)
    assert {status for _, status, *_ in one} == {200, 429, 503}
    assert [item[1:] for item in one] == [item[1:] for item in two]
    assert [item[0] / 64 for item in one] == pytest.approx([item[0] for item in two])


@pytest.mark.parametrize(
    ("outage", "status", "wire"), [("http_503", 503, ""), ("hang", 0, "hang"), ("reset", 0, "reset")]
)
def test_outages_stop_everything(body: MakeBody, outage: Any, status: int, wire: str) -> None:
    """Between start and end nothing is answered; before and after all is well."""
    spec = ProviderSpec(outages=((5.0, 10.0),), outage=outage)
    _, trace = run(spec, *[(at, body()) for at in (0.0, 4.9, 5.0, 9.9, 10.0)])
    assert [(code, how) for _, code, how, _ in trace] == [(200, "")] * 2 + [(status, wire)] * 2 + [(200, "")]


def test_the_same_seed_gives_the_same_trace(body: MakeBody) -> None:
    """Two runs of one seed agree to the last byte and the last digit; another seed differs."""
    spec = ProviderSpec(
        latency_median=1.0,
        latency_sigma=0.8,
        capacity=5,
        mode="queue",
        faults={"hang": 0.1, "http_503": 0.1, "cut": 0.1, "two_verdicts": 0.1, "throttle_ms": 0.1},
    )
    sends = [(n / 20, body(str(n))) for n in range(300)]
    (_, first), (_, again), (_, other) = (run(spec, *sends, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


STATUS: dict[str, int] = {
    "slow_down": 429,
    "http_500": 500,
    "http_502": 502,
    "http_503": 503,
    "http_504": 504,
    "http_529": 529,
    "http_408": 408,
    "quota": 429,
    "auth": 401,
    "forbidden": 403,
    "unknown_model": 404,
    "too_long": 400,
    "policy": 400,
    "redirect": 307,
}
WIRE = {"hang", "drip", "reset", "cut", "cut_silent", "huge", "bomb"}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_appears_as_itself(body: MakeBody, fault: Fault) -> None:
    """A fault of probability 1 strikes, is counted under its name, and bears its status or marker."""
    provider = Provider(ProviderSpec(faults={fault: 1.0}, huge_bytes=100_000))
    answer = run_virtual(send(provider, body()))
    stats = provider.stats()
    assert stats.by_fault == {fault: 1}
    assert answer.wire == (fault if fault in WIRE else "")
    if fault.startswith("throttle_"):
        assert (answer.status, stats.refused) == (429, 1)
        assert ("retry-after" in answer.headers or "retry-after-ms" in answer.headers) == (fault != "throttle_none")
    elif fault in STATUS:
        assert answer.status == STATUS[fault]
    elif fault in ("hang", "reset"):
        assert stats.broken == 1
    else:
        assert answer.status == 200
    clean = run_virtual(send(Provider(ProviderSpec()), body()))
    assert (answer.status, answer.wire, answer.headers, answer.body) != (200, "", clean.headers, clean.body)


def content(fault: Fault, body: bytes) -> tuple[str | None, str]:
    """What the judge says under a fault, and why it stopped."""
    answer = run_virtual(send(Provider(ProviderSpec(faults={fault: 1.0})), body))
    choice = json.loads(answer.body)["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def test_corrupted_replies_are_corrupted_in_the_right_place(body: MakeBody) -> None:
    """Each reply fault is what its name says, in the form that was asked for."""
    text = "An answer. [[quality=4]]"
    assert json.loads(content("out_of_range", body(text))[0] or "")["score"] == 100
    assert json.loads(content("nan_score", body(text))[0] or "")["score"] != 4
    assert "score" not in json.loads(content("no_verdict", body(text))[0] or "")
    assert (content("two_verdicts", body(text))[0] or "").count('"score"') == 2
    assert (content("duplicate_score", body(text))[0] or "").endswith('"score":10, "score": 4}')
    assert (content("empty_content", body(text))[0] or "x").strip() == ""
    assert content("content_filter", body(text)) == ("", "content_filter")
    assert content("refusal", body(text))[0] is None
    cut, finish = content("length", body(text))
    assert finish == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut or "")


def test_corrupted_bodies_are_invalid_json(body: MakeBody) -> None:
    """Bodies that lenient parsers accept and careful ones must not."""

    def raw(fault: Fault) -> bytes:
        return run_virtual(send(Provider(ProviderSpec(faults={fault: 1.0})), body("[[quality=3]]"))).body

    with pytest.raises(json.JSONDecodeError):
        json.loads(raw("malformed"))
    assert b"NaN" in raw("nan_json")
    assert json.loads(raw("nan_json"))["choices"]
    assert raw("duplicate_keys").count(b'"message"') == 2
    assert json.loads(raw("no_choices"))["choices"] is None
    assert raw("html").startswith(b"<!doctype")
    assert raw("empty_body") == b""


def test_fault_shares_are_kept(body: MakeBody) -> None:
    """Over many requests each fault has about its probability."""
    provider, _ = run(ProviderSpec(faults={"hang": 0.2, "http_500": 0.05}), *[(0.0, body())] * 2000)
    found = provider.stats().by_fault
    assert 340 < found["hang"] < 460
    assert 60 < found["http_500"] < 140


def test_everything_is_counted_once(body: MakeBody) -> None:
    """received = answered + refused + failed + broken + abandoned, whatever happens."""
    share = 1 / len(FAULTS)
    spec = ProviderSpec(latency_median=1.0, capacity=20, faults=dict.fromkeys(FAULTS, share * 0.9), huge_bytes=100_000)
    provider = Provider(spec, 4)

    async def impatient(n: int) -> None:
        try:
            async with asyncio.timeout(0.5 if n % 7 == 0 else 9.0):
                await send(provider, body(str(n % 50)), n / 40)
        except TimeoutError:
            pass

    async def main() -> None:
        await asyncio.gather(*(impatient(n) for n in range(1000)))

    run_virtual(main())
    stats = provider.stats()
    ended = stats.answered + stats.refused + stats.failed + stats.broken + stats.abandoned
    assert stats.received == ended
    assert min(stats.answered, stats.refused, stats.failed, stats.broken, stats.abandoned) > 0
    assert (stats.open, stats.busy) == (0, 0)
    assert stats.by_key == {key_label("Bearer k"): stats.received}


def test_repeats_are_seen(body: MakeBody) -> None:
    """How often the same body came shows whether a client pays twice."""
    provider, _ = run(ProviderSpec(), (0.0, body("a")), (0.0, body("a")), (1.0, body("b")))
    stats = provider.stats()
    assert (stats.distinct, stats.max_repeats) == (2, 2)
    assert [provider.received(body(text)) for text in "abc"] == [2, 1, 0]


@pytest.mark.parametrize(
    ("spec", "more", "status", "code"),
    [
        (ProviderSpec(key="right"), {}, 401, "invalid_api_key"),
        (ProviderSpec(model="other"), {}, 404, "model_not_found"),
        (ProviderSpec(unsupported=("temperature",)), {"temperature": 0}, 400, "unsupported_parameter"),
        (ProviderSpec(context_tokens=5), {}, 400, "context_length_exceeded"),
        (ProviderSpec(), {"messages": 5}, 400, None),
    ],
)
def test_hopeless_requests_are_told_why(
    body: MakeBody, spec: ProviderSpec, more: dict[str, Any], status: int, code: str | None
) -> None:
    """Wrong key, model, parameter, length or shape: the status and code real providers use."""
    answer = run_virtual(send(Provider(spec), body(**more)))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (status, code)


def test_answers_bear_usage_and_an_id(body: MakeBody) -> None:
    """Token counts and a request id, as clients expect them."""
    provider = Provider(ProviderSpec())
    answer = run_virtual(send(provider, body("x" * 4000)))
    usage = json.loads(answer.body)["usage"]
    assert 1000 <= usage["prompt_tokens"] <= 1050
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert answer.headers["x-request-id"] == "req-sim-1"
    assert (provider.stats().tokens_in, provider.stats().tokens_out) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )


def test_the_constant_provider_reads_nothing(body: MakeBody) -> None:
    """Any body gets the same score, after the latency and within the capacity of the spec."""
    spec = ProviderSpec(judge="constant", latency_median=1.0, capacity=1, mode="queue")
    _, trace = run(spec, (0.0, b"not json"), (0.0, body()))
    assert [when for when, *_ in trace] == [1.0, 2.0]
    assert trace[0][3] == trace[1][3]
    assert json.loads(json.loads(trace[0][3])["choices"][0]["message"]["content"])["score"] == 7


def test_the_shown_state_is_readable(body: MakeBody) -> None:
    """repr tells a reader of a failing test where the provider stands."""
    provider, _ = run(ProviderSpec(), (0.0, body()))
    assert repr(provider) == "Provider(1 received, 1 answered, 0 open)"
