"""Messages on a byte stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.runtime.frames import Frames, framed


class Reader:
    """Feeds a stream to Frames as a transport does, a few bytes at a time."""

    def __init__(self) -> None:
        self.took: list[bytes] = []
        self.frames = Frames(lambda data: self.took.append(bytes(data)), lambda: None)

    def feed(self, data: bytes, most: int) -> None:
        for at in range(0, len(data), most):
            self.frames.data_received(data[at : at + most])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 40_000).map(bytes), max_size=12),
    st.integers(1, 100_000),
)
def test_messages_arrive_whole_and_in_order(messages: list[bytes], most: int) -> None:
    """Large, empty, several at once, or a byte at a time."""
    most = max(most, sum(map(len, messages)) // 500)
    reader = Reader()
    reader.feed(b"".join(framed(messages)), most)
    assert reader.took == messages
    assert not reader.frames._buffer


def test_a_message_that_is_refused_is_not_taken_again() -> None:
    """An error in one message leaves the stream in step."""
    reader = Reader()

    def refuse(data: memoryview) -> None:
        reader.took.append(bytes(data))
        if data == b"bad":
            raise ValueError("bad")

    reader.frames._took = refuse
    with pytest.raises(ValueError, match="bad"):
        reader.feed(b"".join(framed([b"one", b"bad"])), 100)
    reader.feed(b"".join(framed([b"two"])), 100)
    assert reader.took == [b"one", b"bad", b"two"]
