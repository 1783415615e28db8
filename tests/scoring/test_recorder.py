"""The record kept of what was judged elsewhere."""

from __future__ import annotations

import pytest

from referee.config import load
from referee.ledger import Tally, verdict_line
from referee.records import Ask, Message, Reason, Reply, Sample, Sampling, Settled, Unscored, Verdict
from referee.scoring.batch import Batch
from referee.scoring.lines import MAX_TEXTS, Wanted
from referee.scoring.recorder import _counted

SCORED = Verdict(score=7.0, value=0.7, reason="good", how="schema")
REPLY = Reply(text="{}", model="m", tokens_in=100, tokens_out=20, tokens_cached=10, tokens_cache_write=6)
ENDS = [
    Settled(
        verdict=SCORED,
        origin="call",
        reply=REPLY,
        attempts=2,
        queued_s=0.5,
        latency_s=1.5,
        tokens_in=100,
        tokens_out=20,
        tokens_cached=10,
        tokens_cache_write=6,
        cost=0.01,
    ),
    Settled(verdict=SCORED, origin="cache", reply=REPLY, saved=0.02),
    Settled(verdict=SCORED, origin="shared", reply=REPLY),
    Settled(verdict=SCORED, origin="gate"),
    Settled(verdict=Unscored(reason=Reason.DEADLINE, detail="late"), origin="none", attempts=1, cost=0.03),
    Settled(verdict=Unscored(reason=Reason.CONFIG), origin="none"),
]


@pytest.mark.parametrize("settled", ENDS)
def test_the_short_line_counts_as_the_whole_one_does(settled: Settled) -> None:
    """What is left out of the line for the tally, no tally looks at."""
    config = load({"endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": ""}})
    samples = [Sample(prompt="p", response="r", group="g", length=3), Sample(prompt="p", response="s", group="g")]
    batch = Batch("1-1", samples, config, 10.0, lambda rewards, error, done: None)
    short, whole = Tally(), Tally()
    for index, sample in enumerate(samples):
        short.add(_counted(batch, index, settled))
        whole.add(verdict_line(sample, settled, batch=batch.id, index=index))
    assert short.metrics() == whole.metrics()


def test_system_messages_of_their_own_do_not_fill_the_memory() -> None:
    """As with a decision model's questions about each prompt. All are given, each once if it comes again soon."""
    wanted = Wanted(content=True)
    given = []
    for number in range(2 * MAX_TEXTS):
        messages = (Message("system", f"{number}"), Message("user", "judge"))
        for _ in range(2):
            wanted.refer_to(Ask(messages, Sampling(), (), "n", 10))
        given += wanted.take_texts()
    assert given == [f"{number}" for number in range(2 * MAX_TEXTS)]
    assert len(wanted.known) <= MAX_TEXTS
