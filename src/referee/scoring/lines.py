"""Ledger lines, made where judging happens and written where the ledger is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from referee import clock
from referee.config import JudgeConfig
from referee.ledger import JudgeLine, VerdictLine, judge_line, verdict_line
from referee.ledger.writer import _without_surrogates
from referee.records import Ask, Sample, Settled

_encode = msgspec.json.Encoder().encode


class Wanted:
    """What one client wants of ledger lines."""

    __slots__ = ("content", "known", "number", "texts")

    def __init__(self, content: bool, number: Callable[[], int] | None = None) -> None:
        """`number`: the next `seq`, for a client in this process: it gets lines as they are. None: they are encoded."""
        self.number = number
        self.content = content
        """Prompts, responses and replies themselves, not only their digests."""
        self.known: set[str] = set()
        """Texts that lines refer to and that it was given."""
        self.texts: list[str] = []
        """Those it is yet to be given."""

    def take_texts(self) -> list[str]:
        """The texts to send with the next lines."""
        texts, self.texts = self.texts, []
        return texts


class LineMaker:
    """Makes the lines of every client that wants them."""

    def __init__(self, judges: Sequence[JudgeConfig], wanted: Callable[[str], Wanted | None]) -> None:
        """`wanted(client)`: None where no lines are."""
        self._judges = judges
        self._lone = len(judges) == 1
        self._wanted = wanted

    def of(
        self,
        client: str,
        batch: str,
        index: int,
        sample: Sample,
        judge: int,
        settled: Settled,
        request: Ask | None,
    ) -> tuple[Any, ...]:
        """The lines of what one judge, by its number, said of a sample; none if the client wants none."""
        wanted = self._wanted(client)
        if wanted is None:
            return ()
        if wanted.content and request is not None and len(request.messages) > 1:
            text = request.messages[0].content
            if text not in wanted.known:
                wanted.known.add(text)
                wanted.texts.append(text)
        whole = verdict_line(
            sample,
            settled,
            seq=wanted.number() if wanted.number is not None and self._lone else 0,
            wall=clock.wall(),
            batch=batch,
            index=index,
            request=request,
            content=wanted.content,
        )
        line: VerdictLine | JudgeLine = whole
        if not self._lone:
            line = judge_line(self._judges[judge].name, whole)
        if wanted.number is not None:
            return (line,)
        try:
            return (_encode(line),)
        except UnicodeEncodeError:
            return (_encode(_without_surrogates(msgspec.to_builtins(line))),)
