"""The simulated provider: what happens to a request, and when. `http` and `transport` connect it to clients.

Time comes from `referee.clock`, so it is virtual on a `VirtualLoop`. All randomness comes from one seeded generator,
drawn the same number of times per request in order of arrival: equal arrivals with an equal seed meet equal latencies
and faults.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import accumulate

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee import clock
from referee.sim.apis import find_api
from referee.sim.billing import Bill, Blocks, Usage
from referee.sim.chat import ChatRequest, ask
from referee.sim.comparisons import mislabelled
from referee.sim.judge import HonestJudge, Judge
from referee.sim.numbers import NumberApi, NumberRequest
from referee.sim.rates import Rates, retry_after
from referee.sim.replies import (
    BODIES,
    IMMEDIATE,
    JSON,
    THROTTLES,
    WIRES,
    SimResponse,
    bomb,
    completion,
    constant,
    error,
    prompt_tokens,
    tokens,
)
from referee.sim.spec import Fault, ProviderSpec, RetryAfter
from referee.sim.station import Station
from referee.sim.stats import Stats, Tally

CREATED = 1_700_000_000
"""`created` of the first completion; a fixed date keeps bodies the same from run to run."""


DEGRADE_POWER = 2.0
"""mode = "degrade": service time is multiplied by (in flight / capacity) ** this, so that throughput falls."""


class Plan(Struct, frozen=True):
    """The outcome of a request, before capacity is considered."""

    response: SimResponse
    wait: float
    """Service time, or time to refuse."""
    slot: bool = False
    """True if it occupies a slot for that time."""
    fault: str = ""
    usage: Usage = Usage()


class Provider:
    """A provider as specified. `judge` overrides the one in `spec`. Bound to one event loop."""

    def __init__(self, spec: ProviderSpec, seed: int = 0, judge: Judge | None = None) -> None:
        self.spec = spec
        own = HonestJudge()
        own.compares = spec.compares
        self._judge: Judge = judge or own
        self._random = random.Random(seed)
        self._rates = Rates(spec)
        self._limited = spec.rpm is not None or spec.tpm is not None
        self._station = Station(spec)
        self._blocks = None if spec.prompt_cache is None else Blocks(spec.prompt_cache, spec.chars_per_token)
        self.bill = Bill(spec.prices)
        """What it charges for answered requests."""
        self._faults = list(zip(accumulate(spec.faults.values()), spec.faults, strict=True))
        self.api = find_api(spec.api)
        self._origin: float | None = None
        self._tally = Tally()
        self.sleep = clock.sleep
        """Replaced where millisecond timers are too coarse."""
        self.batches = 0
        """Batches created."""
        self._constant = constant() if spec.judge == "constant" and judge is None else None

    async def serve(self, body: bytes, headers: Mapping[str, str], path: str = "") -> SimResponse:
        """Serve a request (header names in lower case), taking its simulated time; returns what goes on the wire."""
        at = self._now()
        serial = self._tally.arrived(body, self.api.key(headers))
        try:
            plan = self._plan(at, serial, body, headers, path)
            if plan.slot:
                plan = await self._serve_in_slot(at, plan)
            else:
                await self._elapse(plan.wait)
        except BaseException:
            self._tally.left()
            raise
        plan.response.headers["x-request-id"] = f"req-sim-{serial}"
        usage, now = plan.usage, self._now()
        if plan.response.status == 200 and not plan.response.wire:
            self.bill.add(usage)
            if self._blocks is not None:
                self._blocks.keep(usage.blocks, now)
        self._tally.ended(plan.response, plan.fault, (usage.tokens_in, usage.tokens_out), now)
        return plan.response

    def stats(self) -> Stats:
        """Counts so far."""
        found, station = self._tally.snapshot(), self._station
        found.billed_usd, found.tokens_cached = float(self.bill.total), self.bill.cached
        found.tokens_cache_write = self.bill.written
        found.busy, found.max_busy = station.busy, station.max_busy
        found.queued, found.max_queued = station.queued, station.max_queued
        found.batches = self.batches
        return found

    def received(self, body: bytes) -> int:
        """How often this exact body was received."""
        return self._tally.repeats(body)

    def _now(self) -> float:
        """Provider time: 0 at the first request."""
        now = clock.now()
        if self._origin is None:
            self._origin = self._station.origin = now
        return (now - self._origin) * self.spec.time_scale

    async def _elapse(self, seconds: float) -> None:
        if seconds > 0:
            await self.sleep(seconds / self.spec.time_scale)

    async def _serve_in_slot(self, at: float, plan: Plan) -> Plan:
        """Serve a planned reply subject to capacity: queue, refuse or degrade."""
        spec, station, wait = self.spec, self._station, plan.wait
        if spec.mode == "queue":
            await station.wait(at)
        elif spec.mode == "refuse" and not station.free(at):
            refusal = self._throttle(spec.retry_after_s, spec.retry_after, at, "capacity")
            await self._elapse(refusal.wait)
            return refusal
        else:
            station.enter()
            limit = station.capacity(at)
            if limit is not None and station.busy > limit:
                wait *= (station.busy / max(1, limit)) ** DEGRADE_POWER
        try:
            await self._elapse(wait)
        finally:
            station.leave()
        self._tally.stats.work += wait
        return plan

    def _plan(self, at: float, serial: int, body: bytes, headers: Mapping[str, str], path: str) -> Plan:
        """Decide what happens to a request that arrives at `at`, and prepare its reply."""
        draw = self._random.random
        chance, spread, tail, spare = draw(), self._random.gauss(0.0, 1.0), draw(), draw()
        spec = self.spec
        if self._constant is not None:
            content, used = self._constant
            wait = self._duration(spread, tail)
            return Plan(SimResponse(200, {**JSON}, content), wait, True, "", Usage(tokens(len(body)), used))
        try:
            request = self.api.request(path, body)
        except ValueError as problem:
            say = f"We could not parse the JSON body of your request: {problem}"
            return self._fail(error("bad_request", say=say, api=self.api))
        rejection = self._rejection(request, body, headers)
        if rejection is not None:
            return self._fail(rejection)
        if spec.outages and any(start <= at < end for start, end in spec.outages):
            return self._fault(spec.outage, at, "outage")
        flex = request.service_tier == "flex"
        if flex and any(start <= at < end for start, end in spec.flex_full):
            return Plan(error("flex_full", api=self.api), spec.refuse_latency, fault="flex")
        fault = next((name for edge, name in self._faults if chance < edge), None)
        if fault is not None and fault in IMMEDIATE:
            return self._fault(fault, at, fault)

        content, usage = self._reply(at, serial, request, fault, spare)
        if self._limited:
            due = self._rates.admit(at, usage.tokens_in + usage.tokens_out)
            if due is not None:
                return self._throttle(due, spec.retry_after, at, "rate")
        wait = self._duration(spread, tail)
        return Plan(self._respond(content, fault, spare, at), wait, True, fault or "", usage)

    def _reply(
        self, at: float, serial: int, request: ChatRequest, fault: Fault | None, spare: float
    ) -> tuple[bytes, Usage]:
        """The body of a reply, corrupted by `fault`, and what it is billed for."""
        spec, asked = self.spec, prompt_tokens(request, self.spec.chars_per_token)
        if isinstance(request, NumberRequest):
            assert isinstance(self.api, NumberApi)
            content, used = self.api.reply(request, fault, asked)
            return content, Usage(asked, used)
        question = ask(request)
        wrong = question
        if question.shown and (fault == "label_missing" or fault == "label_twice" or fault == "label_unknown"):
            wrong = replace(question, shown=mislabelled(question.shown, question.listed, fault))
        cached, written, blocks = self._blocks.look_up(request, asked, at) if self._blocks else (0, 0, ())
        content, used = completion(
            request,
            self._judge.answer(wrong),
            question,
            asked=asked,
            serial=serial,
            created=CREATED + int(at),
            fault=fault,
            per_token=spec.chars_per_token,
            hidden=int(spare * (spec.reasoning_tokens + 1)),
            cached=cached,
            written=written,
            api=self.api,
        )
        return content, Usage(asked, used, cached, written, request.service_tier == "flex", blocks)

    def _duration(self, spread: float, tail: float) -> float:
        """Service time of a reply, from two random draws."""
        spec = self.spec
        wait = spec.latency_median * math.exp(spec.latency_sigma * spread)
        return wait * spec.tail_factor if tail < spec.tail_share else wait

    def _rejection(self, request: ChatRequest, body: bytes, headers: Mapping[str, str]) -> SimResponse | None:
        """The error for a request that can never succeed."""
        spec, api = self.spec, self.api
        if spec.key and api.key(headers) != spec.key:
            return error("auth", api=api)
        if spec.model and request.model != spec.model:
            return error("unknown_model", say=f"The model `{request.model}` does not exist.", api=api)
        if spec.unsupported:
            fields = msgspec.json.decode(body)
            for name in spec.unsupported:
                param = api.field(name, fields)
                if param:
                    say = f"Unsupported parameter: '{param}' is not supported with this model."
                    return error("unsupported", param=param, say=say, api=api)
        if spec.context_tokens is not None and prompt_tokens(request, spec.chars_per_token) > spec.context_tokens:
            return error("too_long", api=api)
        return None

    def _fail(self, response: SimResponse) -> Plan:
        return Plan(response, self.spec.refuse_latency)

    def _throttle(self, seconds: float, form: RetryAfter, at: float, why: str) -> Plan:
        hint = retry_after(form, seconds / self.spec.time_scale, clock.wall())
        return Plan(error("throttle", {**hint, **self._headers(at)}, api=self.api), self.spec.refuse_latency, fault=why)

    def _headers(self, at: float) -> dict[str, str]:
        return self.api.headers(self._rates.headers(at))

    def _fault(self, fault: Fault, at: float, why: str) -> Plan:
        """A fault instead of service."""
        if fault in THROTTLES:
            return self._throttle(self.spec.retry_after_s, THROTTLES[fault], at, why)
        if fault in ("hang", "reset"):
            return Plan(SimResponse(0, {}, b"", "hang" if fault == "hang" else "reset"), 0.0, fault=why)
        if fault == "redirect":
            moved = SimResponse(307, {**JSON, "location": self.spec.redirect_to}, b"{}")
            return Plan(moved, self.spec.refuse_latency, fault=why)
        return Plan(error(fault, self._headers(at), api=self.api), self.spec.refuse_latency, fault=why)

    def _respond(self, content: bytes, fault: Fault | None, spare: float, at: float) -> SimResponse:
        """Status 200 with `content`, and the wire fault if any."""
        headers = {**JSON, **self._headers(at)} if self._limited else {**JSON}
        if fault is None:
            return SimResponse(200, headers, content)
        if fault in BODIES:
            kind, page = BODIES[fault]
            return SimResponse(200, {**headers, "content-type": kind}, page)
        if fault == "bomb":
            return SimResponse(200, {**headers, "content-encoding": "gzip"}, bomb(self.spec.huge_bytes), "bomb")
        return SimResponse(200, headers, content, WIRES.get(fault, ""), int(spare * len(content)))

    def __repr__(self) -> str:
        stats = self._tally.stats
        return f"Provider({stats.received} received, {stats.answered} answered, {stats.open} open)"
