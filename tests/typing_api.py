"""The public names as a typed program uses them. mypy --strict reads this; nothing runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from referee import Referee, Reward, Sample, Ticket, Unscored, Verdict, score_table
from referee.config import EndpointConfig, JudgeConfig
from referee.judging import KINDS, Deliberation, Form, Judge, JudgeFactory, Question, together
from referee.records import Ask, Failure, Reply
from referee.testing import Deliberated, build_judge, check_dialect, check_judge, deliberate, fake_referee, write
from referee.wire import PLAIN, Adaptation, Dialect, failure


def blocking() -> list[float | None]:
    with Referee.from_config({"endpoint": {"model": "m"}}) as referee:
        ticket: Ticket = referee.submit([Sample(prompt="p", response="r")], deadline=10.0)
        for reward in ticket:
            took: Reward = reward
            assert took.scored
        rewards: list[Reward] = ticket.result(timeout=1.0)
        metrics: dict[str, float] = referee.metrics()
        counts: tuple[int, ...] = referee.histograms()["score"].counts
        assert metrics, counts
        return [reward.value for reward in rewards]


def tables(referee: Referee) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"question": "q", "answer": "a"}]
    return score_table(rows, referee, map={"response": "answer"}, keep=["question"], progress=False)


async def awaiting(referee: Referee) -> str:
    ticket = referee.submit([Sample(prompt="p", response="r")])
    async for reward in ticket:
        assert isinstance(reward.index, int)
    first: Reward = (await ticket)[0]
    again: list[Reward] = await referee.ascore([Sample(prompt="p", response="r")])
    assert again
    verdict = first.verdict
    if isinstance(verdict, Unscored):
        return verdict.reason.value
    judged: Verdict = verdict
    return judged.reason


class Both:
    unit: Literal["sample"] = "sample"

    def __init__(self, questions: Sequence[Judge]) -> None:
        self.questions = questions

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        verdicts = yield from together([question.deliberate(samples, form) for question in self.questions])
        return verdicts[:1]


def make(config: JudgeConfig, question: Question) -> Judge:
    return Both([question(KINDS[name](config)) for name in ("score", "yes_no")])


class Lines:
    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        return b"\n".join(message.content.encode() for message in request.messages)


class Plain(Dialect):
    name = "plain/1"

    def url(self, endpoint: EndpointConfig) -> str:
        return endpoint.url

    def encoder(self, endpoint: EndpointConfig) -> Lines:
        return Lines()

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        return Reply(text=body.decode()) if status == 200 else failure(status, headers, body, wall)


def testing() -> None:
    samples = [Sample(prompt="p", response="r")]
    judge: Judge = build_judge(JudgeFactory(make, unit="sample"), criteria="c")
    check_judge(judge, samples)
    found: Deliberated = deliberate(judge, samples, lambda ask: "text")
    assert found.verdicts
    check_dialect(Plain())
    with fake_referee({}, lambda question: write(question, 7)) as referee:
        referee.score(samples)
