"""Ledger lines, made where judging happens and written where the ledger is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from referee import clock
from referee.config import JudgeConfig
from referee.ledger import AskLine, ask_line, judge_line, verdict_line
from referee.ledger.writer import encode_replacing
from referee.records import Ask, Settled
from referee.scoring.case import Case
from referee.scoring.messages import Work

_encode = msgspec.json.Encoder().encode


MAX_TEXTS = 4096
"""Texts that are remembered as given; then all are forgotten, and given again with the next line. Where each row has a
system message of its own, they would fill the memory."""


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

    def refer_to(self, request: Ask) -> None:
        """A line refers to this request's system message."""
        if self.content and len(request.messages) > 1 and request.messages[0].role == "system":
            text = request.messages[0].content
            if text not in self.known:
                if len(self.known) >= MAX_TEXTS:
                    self.known.clear()
                self.known.add(text)
                self.texts.append(text)

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
        self, client: str, work: Work, place: int, judge: int, settled: Settled, case: Case | None
    ) -> tuple[Any, ...]:
        """The lines of what one judge, by its number, said of a sample; none if the client wants none. Last its verdict
        or judge line; before it, of the first sample of a case, those of the case's questions."""
        wanted = self._wanted(client)
        if wanted is None:
            return ()
        request = case.asked[0][0] if case is not None and len(case.asked) == len(case.places) == 1 else None
        if request is not None:
            wanted.refer_to(request)
        whole = verdict_line(
            work.samples[place],
            settled,
            seq=wanted.number() if wanted.number is not None and self._lone else 0,
            wall=clock.wall(),
            batch=work.batch,
            index=work.indexes[place],
            request=request,
            content=wanted.content,
            team=work.team,
        )
        line = whole if self._lone else judge_line(self._judges[judge].name, whole)
        lines: tuple[Any, ...] = (line,)
        if request is None and case is not None and place == case.places[0]:
            lines = (*self._asks(wanted, work, judge, case), line)
        return lines if wanted.number is not None else tuple([encode_replacing(_encode, line) for line in lines])

    def _asks(self, wanted: Wanted, work: Work, judge: int, case: Case) -> Iterator[AskLine]:
        name, indexes, wall = self._judges[judge].name, [work.indexes[place] for place in case.places], clock.wall()
        for request, settled in case.asked:
            wanted.refer_to(request)
            yield ask_line(
                name,
                settled,
                wall=wall,
                batch=work.batch,
                indexes=indexes,
                request=request,
                content=wanted.content,
                team=work.team,
            )
