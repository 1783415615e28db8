"""Several deliberations side by side, as one: what juries and other judges made of judges stand on."""

from __future__ import annotations

from collections.abc import Sequence

from referee.judging.kind import Deliberation
from referee.records import Ask, Unscored, Verdict


def together(
    members: Sequence[Deliberation],
) -> Deliberation:
    """Ask what all of them ask, round by round. Returns their verdicts, one list after the other.

    A member that is done waits for the others. Each gets the answers to its own questions, in its order.
    """
    ends: list[Sequence[Verdict | Unscored]] = [()] * len(members)
    sent: dict[int, Sequence[Verdict | Unscored] | None] = dict.fromkeys(range(len(members)))
    while sent:
        rounds: list[tuple[int, Sequence[Ask]]] = []
        for number, answers in sent.items():
            try:
                rounds.append((number, members[number].send(answers)))  # type: ignore[arg-type]
            except StopIteration as stop:
                ends[number] = stop.value
        if not rounds:
            break
        replies = yield [request for _, asks in rounds for request in asks]
        sent, start = {}, 0
        for number, asks in rounds:
            sent[number] = replies[start : start + len(asks)]
            start += len(asks)
    return [verdict for verdicts in ends for verdict in verdicts]
