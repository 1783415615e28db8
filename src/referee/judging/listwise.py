"""kind = "listwise": all responses of a group in one request, a score for each.

A judge that sees them side by side tells apart what it would give the same score one by one, at the cost of one call.
Asked in several orders, its liking for a place in the list cancels out. A group that does not fit is asked about in
chunks that share a few responses, the anchors, and the chunks' scores are shifted until the anchors' agree. A response
that does not fit beside two others is left out.
"""

from __future__ import annotations

import functools
import itertools
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from referee.config import JudgeConfig
from referee.judging.digest import tokens_in
from referee.judging.judge import SampleJudge
from referee.judging.kind import Deliberation, Form, Judge, Kind, closed_schema, forms_of
from referee.judging.labels import score_each
from referee.judging.prompt_builder import RESPONSES
from referee.judging.score import on_scale, scale_values
from referee.judging.siblings import Alone, Siblings, siblings_of
from referee.judging.template import shipped, shipped_replies
from referee.records import Ask, Part, Reason, Sample, Sampling, Unscored, Verdict

REPLY_TOKENS = 96
"""Room for the label, the reason and the score of one response."""
LONGEST_REPLY = 4096
"""Tokens that are asked for without being told to: some models refuse a request for more. A reply that is cut is asked
for again with twice the room."""
ANCHORS = 2
"""Responses that every chunk shows. One where a chunk holds fewer than four."""
IN_CHUNKS = " chunks"
"""How a part's text ends where the group was split."""
_PLACE = re.compile(r"shown ([1-9][0-9]*) of ([1-9][0-9]*)")
LEAST = 3
"""Responses that one request must have room for: an anchor and two to compare with it."""

Texts = tuple[str, ...]
"""Responses of one request, in the order in which it shows them."""
Answers = dict[Texts, Verdict | Unscored]
"""What is said of each list, as its parts."""
Scores = dict[str, Verdict | Unscored]
"""What one order says of each response."""


class ListwiseJudge:
    """Scores the responses of a group side by side."""

    unit: Literal["group"] = "group"

    def __init__(self, config: JudgeConfig, secret: bytes, template: str | None, used: Mapping[str, Judge]) -> None:
        """As registry.make_judge."""
        self._config = config
        self._kind = listwise(config)
        self._asker = SampleJudge(config, self._kind, secret, template)
        self._alone = Alone(config, used)
        self.columns = tuple(dict.fromkeys((*self._asker.columns, *self._alone.columns)))
        self.shows = self._asker.shows
        self._reader = functools.partial(score_each, config.low, config.high)
        self._samplings: dict[tuple[Form, int], Sampling] = {}
        """One object for each room: bodies are encoded faster where it is the same."""

    def calls(self, count: int) -> int:
        """Requests for a group of `count` different responses that fits one request."""
        return orders_of(count, self._config.permutations)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """One round; more where the judge's context turns out to be too small for the group."""
        most = self._config.max_view_tokens
        found = siblings_of(
            self._asker, samples, form, None if most is None else max(1, most // min(LEAST, len(samples)))
        )
        if found.lone is not None:
            [end] = yield from self._alone.deliberate(samples[found.lone], form)
            return found.ends(dict.fromkeys(found.texts, end))
        if found.sample is None:
            return found.ends({})
        said: Answers = {}
        chunks = chunked(found.texts, len(found.texts), most)
        ends: Scores = {}
        while True:
            orders = self._orders(chunks)
            asked = [texts for texts in dict.fromkeys(itertools.chain(*orders)) if texts not in said]
            if asked:
                said |= zip(asked, (yield [self._ask(found.sample, texts, form) for texts in asked]), strict=True)
            long = [[texts for texts in shown if _too_long(said[texts])] for shown in zip(*orders, strict=True)]
            if not any(long):
                break
            size = max(map(len, chunks))
            if size > LEAST:
                chunks = chunked(found.texts, max(LEAST, (size + 1) // 2), most)
                continue
            why = next(said[texts] for shown in long for texts in shown)
            chunks = without_longest([(chunk, bool(shown)) for chunk, shown in zip(chunks, long, strict=True)])
            ends = dict.fromkeys(set(found.texts).difference(*chunks), why)
        lost = sum(any(isinstance(said[texts], Unscored) for texts in shown) for shown in zip(*orders, strict=True))
        given = [self._valued(found, [(texts, said[texts]) for texts in order]) for order in orders]
        for text in itertools.chain(*chunks):
            shown = [place_words(text, order) for order in orders]
            ends[text] = self._mean([scores[text] for scores in given], shown, len(chunks), lost)
        return found.ends(ends)

    def _orders(self, chunks: Sequence[Texts]) -> list[list[Texts]]:
        """Every chunk in each of the orders that it is asked about in."""
        wanted = self._config.permutations
        count = orders_of(max(map(len, chunks), default=0), wanted)
        return [[ordered(chunk, order, wanted) for chunk in chunks] for order in range(count)]

    def _ask(self, sample: Sample, texts: Texts, form: Form) -> Ask:
        return self._asker.ask_about(sample, texts, form, functools.partial(self._sampling, len(texts)), self._reader)

    def _sampling(self, count: int, form: Form) -> Sampling:
        room = max(self._config.max_tokens, min(REPLY_TOKENS * count, LONGEST_REPLY))
        found = self._samplings.get((form, room))
        if found is None:
            found = self._samplings[form, room] = replace(self._kind.sampling[form], max_tokens=room)
        return found

    def _valued(self, found: Siblings, chunks: Sequence[tuple[Texts, Verdict | Unscored]]) -> Scores:
        """What one order says, with values: of the scores themselves, or of what each is among the others."""
        low, high = self._config.low, self._config.high
        lost = next((answer for _, answer in chunks if isinstance(answer, Unscored)), None)
        if lost is not None and self._config.partial == "unscored":
            return {text: lost for texts, _ in chunks for text in texts}
        scores = merged(chunks)
        copies = {text: len(places) for text, places in found.places.items()}
        shares = ranked(scores, copies, found.gated) if self._config.ranks else {}
        ends: Scores = {}
        for text, verdict in scores.items():
            if isinstance(verdict, Verdict):
                score = min(max(verdict.score, low), high)
                value = shares[text] if self._config.ranks else (score - low) / (high - low)
                verdict = replace(verdict, score=float(score), value=value)
            ends[text] = verdict
        return ends

    def _mean(
        self, given: Sequence[Verdict | Unscored], shown: Sequence[str], chunks: int, lost: int
    ) -> Verdict | Unscored:
        """The verdict on one response, of what each order says; `shown`: where it stood in each."""
        there = [verdict for verdict in given if isinstance(verdict, Verdict)]
        missing = [verdict for verdict in given if isinstance(verdict, Unscored)]
        lacking = f"{len(missing)} of {len(given)} orders have no verdict"
        numbered = [
            Part(name=f"order {number}", verdict=verdict, text=where)
            for number, (verdict, where) in enumerate(zip(given, shown, strict=True), 1)
        ]
        parts = tuple(numbered) if len(given) > 1 or chunks > 1 or self._config.ranks else ()
        without = f"{lost} of {chunks} chunks have no verdict"
        if missing and (self._config.partial == "unscored" or not there):
            words = [lacking] * (len(given) > 1) + [without] * (chunks > 1)
            return Unscored(reason=missing[0].reason, detail="; ".join([*words, missing[0].detail]), parts=parts)
        notes = [f"the group was judged in {chunks} chunks"] if chunks > 1 else []
        notes += [without] if chunks > 1 and lost else []
        notes += [lacking] if missing else []
        values = [verdict.value for verdict in there]
        value = statistics.fmean(values)
        return Verdict(
            score=value if self._config.ranks else statistics.fmean([verdict.score for verdict in there]),
            value=value,
            reason=" ".join([*filter(None, [there[0].reason]), *(f"({note})" for note in notes)]),
            how="listwise",
            uncertainty=statistics.pstdev(values) if len(values) > 1 else None,
            parts=parts,
        )


def place_words(text: str, chunks: Sequence[Texts]) -> str:
    """Where a response stood in one order."""
    if len(chunks) > 1:
        return f"in {len(chunks)}{IN_CHUNKS}"
    return f"shown {chunks[0].index(text) + 1} of {len(chunks[0])}"


def place_in(words: str) -> float | None:
    """The same as a share of the list, 0 for the first; None: there is none, or in chunks."""
    found = _PLACE.fullmatch(words)
    return (int(found[1]) - 1) / (int(found[2]) - 1) if found and found[2] != "1" else None


def listwise(config: JudgeConfig) -> Kind:
    """The texts around the responses."""
    low, high = config.low, config.high
    words = {"type": "string"}
    one = closed_schema({"label": words, "reason": words, "score": on_scale(low, high)})
    return Kind(
        name="listwise/1",
        template=shipped("listwise"),
        needs=(RESPONSES,),
        values=scale_values(config),
        replies=shipped_replies("listwise"),
        sampling=forms_of(config, closed_schema({"responses": {"type": "array", "items": one}})),
        facets=(("scale", f"{low}..{high}"),),
        lowest=0.0 if config.ranks else float(low),
    )


def chunked(texts: Texts, size: int, most: int | None) -> list[Texts]:
    """The texts in chunks of at most `size`, and at most `most` tokens, each in the order of the whole. Several chunks
    share the same anchors, the shortest texts: they take the least room, and a long one among them would fail them all.
    """
    room = sys.maxsize if most is None else most
    # A longer one was cut; the line in it that says so does not count, or two would no longer fit beside the anchor.
    sizes = {text: min(tokens_in(text), room // LEAST) for text in texts}
    if len(texts) <= size and sum(sizes.values()) <= room:
        return [texts]
    anchors = sorted(texts, key=sizes.__getitem__)[:ANCHORS]
    if size <= LEAST or 2 * sum(map(sizes.__getitem__, anchors)) > room:
        anchors = anchors[:1]
    room -= sum(map(sizes.__getitem__, anchors))
    chunks: list[set[str]] = []
    left = 0
    for text in texts:
        if text in anchors:
            continue
        if not chunks or len(chunks[-1]) == size or sizes[text] > left:
            chunks.append({*anchors})
            left = room
        chunks[-1].add(text)
        left -= sizes[text]
    return [tuple(filter(chunk.__contains__, texts)) for chunk in chunks]


def without_longest(chunks: Sequence[tuple[Texts, bool]]) -> list[Texts]:
    """The same chunks, each that was too long without the longest text that it alone holds; one that has nothing left
    to compare is left out."""
    first, *others = (set(texts) for texts, _ in chunks)
    anchors = first.intersection(*others) if others else set[str]()
    left = []
    for texts, too_long in chunks:
        if too_long:
            longest = max([text for text in texts if text not in anchors], key=tokens_in)
            texts = tuple([text for text in texts if text != longest])
        if len(texts) > max(1, len(anchors)):
            left.append(texts)
    return left


def orders_of(count: int, wanted: int) -> int:
    """How many orders of `count` responses are asked about: more than these would be the same requests again."""
    return min(wanted, count if count < LEAST else 2 * count)


def ordered(texts: Texts, order: int, wanted: int) -> Texts:
    """The texts in the order of this number. Every second one is the reverse of that before it, which cancels any
    liking that grows with the place; the others begin evenly spread over the list."""
    orders = orders_of(len(texts), wanted)
    pair, backwards = divmod(order % orders, 2)
    start = pair * len(texts) // ((orders + 1) // 2)
    turned = (*texts[start:], *texts[:start])
    return turned[::-1] if backwards else turned


def merged(chunks: Sequence[tuple[Texts, Verdict | Unscored]]) -> Scores:
    """One verdict for each text. What several chunks show has the mean of its scores, and each chunk is shifted by what
    its anchors' scores differ from that, even beyond the scale: values are not made yet."""
    found: Scores = {}
    given: list[dict[str, Verdict]] = []
    for texts, answer in chunks:
        if isinstance(answer, Unscored):
            found |= dict.fromkeys(texts, answer)
        else:
            parts = zip(texts, answer.parts, strict=True)
            given.append({text: part.verdict for text, part in parts if isinstance(part.verdict, Verdict)})
    anchors = {text for text in given[0] if all(text in chunk for chunk in given)} if len(given) > 1 else set[str]()
    means = {text: statistics.fmean([chunk[text].score for chunk in given]) for text in anchors}
    for chunk in given:
        shift = statistics.fmean([mean - chunk[text].score for text, mean in means.items()] or [0.0])
        for text, verdict in chunk.items():
            found[text] = replace(verdict, score=means.get(text, verdict.score + shift))
    return found


def ranked(scores: Scores, copies: Mapping[str, int], gated: int) -> dict[str, float]:
    """The share of its siblings that each response is scored above, ties half. `copies`: how many samples a text stands
    for; `gated`: how many samples are below all of them."""
    there = {text: verdict.score for text, verdict in scores.items() if isinstance(verdict, Verdict)}
    others = sum(copies[text] for text in there) + gated - 1
    shares: dict[str, float] = {}
    for text, mine in there.items():
        below = sum(copies[other] for other, score in there.items() if score < mine) + gated
        ties = sum(copies[other] for other, score in there.items() if score == mine) - 1
        shares[text] = (below + ties / 2) / others
    return shares


def _too_long(answer: Verdict | Unscored) -> bool:
    return isinstance(answer, Unscored) and answer.reason is Reason.TOO_LONG
