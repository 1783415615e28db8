"""The records: frozen, picklable, and plain enough to be JSON."""

from __future__ import annotations

import pickle
from typing import Any, get_args

import msgspec
import pytest

from referee import records
from referee.records import (
    Action,
    Ask,
    Criterion,
    Failure,
    How,
    Media,
    Message,
    Origin,
    Part,
    Query,
    RateHints,
    Reason,
    Reply,
    Reward,
    Sample,
    Sampling,
    Settled,
    Term,
    TokenChoice,
    Tool,
    ToolCall,
    Unscored,
    Verdict,
)

VERDICT = Verdict(score=7.0, value=2 / 3, reason="fine", how="schema", uncertainty=0.1)
UNSCORED = Unscored(reason=Reason.TIMEOUT, detail="60 s")
REPLY = Reply(text="7", model="m", tokens_in=3, choices=(TokenChoice(token="7", top=(("7", -0.1), ("8", -2.5))),))
SETTLED = Settled(verdict=VERDICT, origin="call", key="k", reply=REPLY, endpoint="e", attempts=1, cost=0.01)

EXAMPLES: list[Any] = [
    Message("user", "hi", "n", "r", (ToolCall("f", "{}"),), (Media("image", "u", 1),)),
    ToolCall("f", "{}"),
    Media("image", "u", 1),
    Tool("f", "d", "{}"),
    Criterion("Is kind", 2.0, "kind", "bad", ("no", "partly", "yes"), (0.0, 0.5, 1.0), True, "max_words", '{"max":3}'),
    Sample(prompt=(Message("user", "hi"),), response="r", tools=(Tool("f"),), columns={"a": "b"}),
    Sample(
        prompt="p", response="r", id="1", group="g", reference="x", rule_score=1.0, length=3, truncated=True, step=2
    ),
    Query("c1", "Is it kind?", ("no", "yes"), True),
    Sampling(schema={"type": "object"}),
    Ask((Message("user", "hi"),), Sampling(), (("model", "m"),), "nonce", 5),
    Part(name="clear", verdict=UNSCORED),
    Term("judge", 0.5, 1.0, SETTLED),
    REPLY.choices[0],
    REPLY,
    Failure(reason=Reason.THROTTLED, action=Action.PARK, status=429, retry_after=1.5),
    RateHints(limit_requests=5, reset_tokens=0.5),
    VERDICT,
    UNSCORED,
    SETTLED,
    Reward(index=0, id="1", group="g", value=1.0, settled=SETTLED),
    Reward(index=0, id="1", group="g", value=None, settled=Settled(verdict=UNSCORED)),
]
STRUCTS = {
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
}


def test_every_record_has_an_example() -> None:
    """A new record must be added here, and so be held to the same rules."""
    assert {type(example) for example in EXAMPLES} == STRUCTS


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_records_cross_processes(record: Any) -> None:
    """Pickling gives an equal record."""
    assert pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_records_do_not_change(record: Any) -> None:
    """A record is frozen and takes no new attributes."""
    with pytest.raises(AttributeError):
        setattr(record, record.__struct_fields__[0], None)
    with pytest.raises(AttributeError):
        record.anything = 1


@pytest.mark.parametrize(
    "record", [one for one in EXAMPLES if not isinstance(one, Ask)], ids=lambda record: type(record).__name__
)
def test_records_can_be_written_as_json(record: Any) -> None:
    """Everything in a record has a JSON form, but for questions: they know how to read their reply."""
    assert isinstance(msgspec.json.decode(msgspec.json.encode(record)), dict)


def test_the_reasons_are_a_closed_set() -> None:
    """The names that policies, reports and dashboards rely on."""
    words = """throttled overloaded timeout connection deadline refused truncated empty no_verdict ambiguous
        out_of_range schema too_long too_large auth quota config budget cancelled alone uncertain"""
    assert sorted(reason.value for reason in Reason) == sorted(words.split())


def test_words_of_records_are_fixed() -> None:
    """Origins and ways of reading, as the ledger writes them."""
    assert set(get_args(Origin)) == {"call", "cache", "shared", "gate", "none"}
    words = "schema tag logprob integer reward_model gate check terms rubric listwise pairwise jury cascade repeat"
    assert set(get_args(How)) == {*words.split()}


def test_a_comparison_in_a_row_has_no_weight_and_no_sign() -> None:
    """Fields that mean nothing of a comparison are left out; a judge without parts has an empty list."""
    part = Part(name="b", verdict=VERDICT, text="shown first", label="won")
    whole = Verdict(score=1.0, value=1.0, how="pairwise", parts=(part,))
    (row,) = Settled(verdict=whole).row()["parts"]
    said = {
        "text": "shown first",
        "verdict": "won",
        "value": VERDICT.value,
        "why": "fine",
        "unscored": "",
        "uncertainty": 0.1,
    }
    assert row == {"name": "b", **said}
    assert Settled(verdict=VERDICT).row()["parts"] == []
    assert {"weight", "true_is"} < part.row("rubric").keys()


def test_a_reward_knows_whether_it_was_scored() -> None:
    """A verdict counts as scored, its absence does not, whatever the value says."""
    scored, unscored = EXAMPLES[-2], EXAMPLES[-1]
    assert (scored.scored, scored.verdict) == (True, VERDICT)
    assert (unscored.scored, unscored.verdict) == (False, UNSCORED)
    filled = msgspec.structs.replace(unscored, value=0.5, filled="value")
    assert not filled.scored


def test_an_unscored_sample_has_no_number() -> None:
    """Absence is a type of its own: it has no score, no value, and is no number."""
    for name in ("score", "value", "__float__"):
        assert not hasattr(UNSCORED, name)


def test_a_reward_prints_in_one_short_line() -> None:
    """Number and verdict, or why there is none; the judge's words and the reply are fields."""
    verdict = Verdict(score=7.0, value=2 / 3, reason="long " * 200)
    given = Reward(index=3, id="r" * 200, group="g", value=0.5, settled=Settled(verdict=verdict))
    assert repr(given) == f"Reward(index=3, id={'r' * 40!r}, value=0.5, score=7)"
    none = Reward(index=0, id="", group="", value=None, settled=Settled(verdict=Unscored(reason=Reason.TIMEOUT)))
    assert repr(none) == "Reward(index=0, id='', value=None, unscored='timeout')"
