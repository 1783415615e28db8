"""Entries as bytes: what comes back is what went in, or nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.cache_suite import entry

from referee.cache.entry import Entry, bare, pack, unpack
from referee.records import Reply, Verdict

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ENTRIES = st.builds(
    Entry,
    verdict=st.builds(
        Verdict,
        score=FINITE,
        value=FINITE,
        reason=st.text(),
        how=st.sampled_from(["schema", "tag", "logprob", "integer", "gate"]),
        uncertainty=st.none() | FINITE,
    ),
    reply=st.builds(
        Reply,
        text=st.text(),
        finish=st.text(),
        refusal=st.text(),
        model=st.text(),
        request_id=st.text(),
        tokens_in=st.integers(0, 2**40),
        tokens_out=st.integers(0, 2**40),
        tokens_cached=st.integers(0, 2**40),
    ),
    cost=FINITE,
    created=FINITE,
    endpoint=st.text(),
)


@given(st.text(), ENTRIES)
@settings(max_examples=100, deadline=None)
def test_what_is_packed_is_unpacked(name: str, value: Entry) -> None:
    """Every field comes back exactly, under its own key only."""
    data = pack(name, value)
    assert unpack(name, data) == value
    assert unpack(name + "x", data) is None


def test_fields_added_to_the_records_are_stored_too() -> None:
    """Nothing is listed by hand but the entry's own fields, which `pack` writes in their order."""
    fields = [field.name for field in msgspec.structs.fields(Entry)]
    assert fields == ["verdict", "reply", "cost", "created", "endpoint", "common", "own"]
    assert unpack("k", pack("k", entry())) == bare(entry())


def test_any_changed_byte_is_a_miss() -> None:
    """Bit rot inside a value passes SQLite's own checks; it does not pass this one."""
    data = pack("k", entry())
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            broken = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            assert unpack("k", broken) is None


@pytest.mark.parametrize("data", [None, 7, 0.5, "text", b"", b"short", b"x" * 16, b"x" * 500])
def test_anything_else_is_a_miss(data: Any) -> None:
    """A damaged column may come back as any type."""
    assert unpack("k", data) is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_verdict_that_is_no_number_does_not_fit(number: float) -> None:
    """NaN is neither stored nor read back."""
    for fields in ({"score": number, "value": 0.5}, {"score": 1.0, "value": number}):
        with pytest.raises(ValueError, match="finite"):
            Entry(verdict=Verdict(**fields), reply=Reply(text=""))
