"""The rows of the browser: columns keep every number, texts come back whole, the limit on texts keeps groups whole."""

from __future__ import annotations

import json
import math
import zlib
from array import array
from typing import Any

import pytest
from tests.report.ledgers import HOSTILE, RUN, hostile, judged, many, pair, several, small

from referee.ledger import Line, RewardLine, VerdictLine
from referee.report.rows import NO_BLOCK, TEXTS, Rows, last_words


class Unpacked:
    """The parts read back as the page reads them."""

    def __init__(self, lines: list[Line], texts_mb: float = 64.0) -> None:
        rows = Rows(texts_mb)
        for line in lines:
            rows.add(line)
        self.meta = rows.meta()
        self.parts = {part.name: zlib.decompress(part.data) for part in rows.parts()}

    def column(self, name: str) -> list[float]:
        """One column's numbers."""
        kind = {"f4": "f", "f8": "d", "u4": "I"}[self.meta.columns[name]]
        return list(array(kind, self.parts[f"column-{name}"]))

    def words(self, name: str) -> list[str]:
        """One column's words."""
        return [self.meta.words[name][int(code)] for code in self.column(name)]

    def texts(self, row: int) -> dict[str, Any] | None:
        """A row's texts, if they were kept."""
        block = self.parts.get(f"texts-{int(self.column('block')[row])}")
        if block is None:
            return None
        return dict(zip((*TEXTS, "said"), json.loads(block)[int(self.column("slot")[row])], strict=False))


def test_columns_hold_the_numbers() -> None:
    """A verdict and its reward are one row, in order of the verdict lines."""
    lines = small()
    found = Unpacked(lines)
    verdicts = [line for line in lines if isinstance(line, VerdictLine)]
    rewards = [line for line in lines if isinstance(line, RewardLine)]
    assert found.meta.rows == len(verdicts) == len(found.column("value"))
    for row, (verdict, reward) in enumerate(zip(verdicts, rewards, strict=True)):
        for name, value in (("score", verdict.score), ("reward", reward.value), ("judge", reward.judge)):
            number = found.column(name)[row]
            assert (math.isnan(number) and value is None) or number == pytest.approx(value, rel=1e-6)
        assert found.column("step")[row] == verdict.step
        assert found.words("group")[row] == verdict.group
        assert found.words("reason")[row] == verdict.unscored
        assert found.column("length")[row] == reward.length


def test_texts_come_back_whole() -> None:
    """Hostile ones too, halves of characters included."""
    found = Unpacked(hostile())
    for number, text in enumerate(HOSTILE):
        texts = found.texts(2 * number)
        assert texts is not None
        for name in ("id", "prompt", "response", "reference", "system", "reply", "why", "key", "request_id"):
            assert texts[name] == text
    assert set(json.loads(found.parts["systems"]).values()) == set(HOSTILE)


def test_heads_are_short() -> None:
    """The list needs an id and a line of the response, not all of it."""
    heads = json.loads(Unpacked(hostile()).parts["heads"])
    assert all(len(head) <= 140 for _, head in heads)
    assert "\n" not in "".join(head for _, head in heads)


def test_a_limit_on_texts_keeps_whole_groups() -> None:
    """Past the limit texts of some groups are left out, all numbers stay."""
    lines = list(many(20_000))
    found = Unpacked(lines, texts_mb=0.5)
    assert found.meta.rows == 20_000
    assert 0 < found.meta.with_texts < 20_000
    weight = sum(len(part) for name, part in found.parts.items() if name.startswith("texts-"))
    assert weight > 0
    blocks, groups = found.column("block"), found.words("group")
    kept: dict[str, set[bool]] = {}
    for row in range(found.meta.rows):
        kept.setdefault(groups[row], set()).add(f"texts-{int(blocks[row])}" in found.parts)
    assert all(len(states) == 1 for states in kept.values())
    assert sum(f"texts-{int(block)}" in found.parts for block in blocks) == found.meta.with_texts
    some = next(row for row in range(20_000) if found.texts(row))
    assert f"Row {some} " in (found.texts(some) or {})["response"]


def test_no_texts_at_all() -> None:
    """A limit of 0 leaves numbers only."""
    found = Unpacked(small(), texts_mb=0)
    assert found.meta.with_texts == 0
    assert set(found.column("block")) == {NO_BLOCK}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            [{"content": "", "reasoning_content": "a"}, {"content": "2.3 m"}, {"content": "High."}, {"content": None}],
            "High.",
        ),
        ([{"content": ""}, "forged"], "all of it"),
        ({"content": "forged"}, "all of it"),
    ],
)
def test_the_list_shows_of_a_conversation_what_was_said_last(messages: Any, words: str) -> None:
    """Not the thoughts and calls it begins with; the whole text where nothing was said."""
    assert last_words(VerdictLine(response="all of it", more={"response": messages})) == words


def test_names_used_twice_meet_their_own_rewards() -> None:
    """A second run whose batches have the same names does not touch the rows of the first."""
    lines = [RUN, *pair(1, 0, 3), RUN, *pair(1, 0, 9)]
    assert Unpacked(lines).column("judge") == pytest.approx([2 / 9, 8 / 9])


def test_absurd_numbers_are_nothing() -> None:
    """What a 32-bit float cannot hold is shown as missing, not as an error."""
    found = Unpacked([VerdictLine(score=1e300, value=0.5, length=10**400, step=10**30, batch="b")])
    assert all(math.isnan(found.column(name)[0]) for name in ("score", "length", "step"))


def test_each_of_several_judges_has_its_columns() -> None:
    """Value, score and what it adds; not a number where it said nothing. Its words are with the texts."""
    found = Unpacked(several(1))
    assert found.meta.judges == ["quality", "safe"]
    assert found.column("score-0")[:4] == [2.0, 5.0, 8.0, 1.0]
    assert [math.isnan(value) for value in found.column("value-1")] == [False, False, False, True] * 2
    assert found.column("adds-1")[:3] == pytest.approx([0.2, 0.15, 0.1])
    assert found.column("score") == found.column("value")
    texts = found.texts(3)
    assert texts is not None
    assert [(one["type"], one["judge"]) for one in texts["said"]] == [
        ("judge", "quality"),
        ("ask", "safe"),
        ("ask", "safe"),
        ("judge", "safe"),
    ]
    assert texts["said"][-1]["detail"] == "declined to answer"


def test_judges_that_come_later_begin_with_empty_columns() -> None:
    """A folder of a run with one judge and of a later one with two."""
    found = Unpacked([RUN, *pair(1, 0, 5), *judged(2, 0, 5, 0.5)])
    assert found.meta.judges == ["quality", "safe"]
    assert math.isnan(found.column("value-0")[0])
    assert found.column("value-1")[1] == 0.5


def test_a_lone_judge_adds_nothing_to_the_rows() -> None:
    """No columns and no lists of lines."""
    found = Unpacked(small())
    assert found.meta.judges == []
    assert not [name for name in found.meta.columns if "-" in name]
    texts = found.texts(0)
    assert texts is not None
    assert "said" not in texts
