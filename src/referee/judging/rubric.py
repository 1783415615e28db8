"""kind = "rubric": criteria that are true of a response or not, asked one at a time, several or all at once, and folded
into one number.

What is asked is only whether a sentence is literally true; what that is worth is counted here. Calls about one response
share everything before the criteria, which stand last, so that a provider's prefix cache serves all but the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from referee.config import JudgeConfig
from referee.judging import statements
from referee.judging.checks import CheckFunction, run_check, unknown_checks
from referee.judging.decision import likeliest, without
from referee.judging.folding import PASSED, Credit, fold
from referee.judging.guard import scrub
from referee.judging.judge import SampleJudge
from referee.judging.kind import Deliberation, Form, Kind, forms_of, sampling_for, unread
from referee.judging.probability import AROUND_LEVEL, MARKS, TOP_LOGPROBS, Scale, answer_token, mean_of, weighed
from referee.judging.prompt_builder import Wording
from referee.judging.score import score
from referee.judging.template import shipped, shipped_replies
from referee.judging.transcript import checked_text
from referee.records import Ask, Criterion, Part, Reason, Reply, Sample, Sampling, TokenChoice, Unscored, Verdict
from referee.rollouts import named_apart

REPLY_TOKENS = 96
"""Room for the reason and the verdict on one criterion."""
STATEMENTS = "statements"
"""The placeholder for the criteria of one question."""
_AROUND_WORD = str.maketrans("", "", MARKS + "{}[]:")
_ENDING = "}}"
"""What stands after the verdict on a criterion asked alone, in JSON."""
MOST_CHOICES = 10
"""Of which the probabilities are read: more are numbers of two digits, whose first may be a choice of its own."""


class RubricJudge:
    """Judges a sample by its own rubric and the judge's."""

    unit: Literal["sample"] = "sample"

    def __init__(
        self, config: JudgeConfig, secret: bytes, template: str | None, functions: Mapping[str, CheckFunction]
    ) -> None:
        """As registry.make_judge."""
        self._config = config
        self._functions = functions
        self._rated = score(config) if config.combined_by == "implicit" else None
        self._asker = SampleJudge(config, _kind(config), secret, template)
        self.columns = self._asker.columns
        self.shows = self._asker.shows
        self._samplings: dict[tuple[tuple[int, bool], ...], Sampling] = {}
        """One object for each shape of a question: bodies are encoded faster where it is the same."""
        self._scale = Scale(1 + config.ask_again)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """One round: every criterion that is not a rule."""
        sample = samples[0]
        criteria = named_apart((*self._config.criterion, *sample.rubric))
        if not criteria:
            detail = "the sample has no rubric, and the judge has no criteria of its own"
            return (Unscored(reason=Reason.CONFIG, detail=detail),)
        unknown = unknown_checks(criteria, self._functions)
        if unknown:
            detail = f"check {unknown[0]}: it is not among the functions that this judge may call (judge.checks)"
            return (Unscored(reason=Reason.CONFIG, detail=detail),)
        if self._rated is not None:
            return (yield from self._rate(self._rated, sample, criteria, form))
        asked = [place for place, criterion in enumerate(criteria) if not criterion.check]
        chunks = [[criteria[place] for place in places] for places in self._chunks(asked)]
        plans = [self._plan(sample, chunk, form) for chunk in chunks or [[]]]
        if not isinstance(plans[0], Ask):
            return (plans[0],)  # a gate, or something that no question of it can be asked without
        # Before the questions: at a deadline all open cases are resumed at once, and a check may take seconds.
        text = checked_text(sample.response, self._config.view) if len(asked) < len(criteria) else ""
        parts: dict[int, Part] = {
            place: _ruled(criterion, run_check(criterion, text, sample, self._functions))
            for place, criterion in enumerate(criteria)
            if criterion.check
        }
        answers = (yield [plan for plan in plans if isinstance(plan, Ask)]) if chunks else []
        for places, answer in zip(self._chunks(asked), answers, strict=True):
            for number, place in enumerate(places):
                parts[place] = _answered(criteria[place], answer, number)
        return (self._fold(criteria, [parts[place] for place in sorted(parts)]),)

    def _fold(self, criteria: Sequence[Criterion], parts: Sequence[Part]) -> Verdict | Unscored:
        """The verdict on the response, of those on its criteria."""
        config = self._config
        missing = [part for part in parts if isinstance(part.verdict, Unscored) and part.weight]
        weighty = [part for part in parts if part.weight]
        if missing and (config.partial == "unscored" or len(missing) == len(weighty)):
            first = missing[0].verdict
            assert isinstance(first, Unscored)
            detail = f"{len(missing)} of {len(parts)} criteria have no verdict; {missing[0].name}: {first.detail}"
            return Unscored(reason=first.reason, detail=detail, parts=tuple(parts))
        counted = [
            Credit(part.weight, part.good, part.verdict.value) for part in parts if isinstance(part.verdict, Verdict)
        ]
        folded = fold(counted, config.combined_by, config.threshold, config.clip)
        if folded is None:
            detail = "no criterion that counts applies to the response"
            return Unscored(reason=Reason.NO_VERDICT, detail=detail, parts=tuple(parts))
        met = sum(credit.met > PASSED for credit in counted)
        words = f"{met} of {len(counted)} criteria are true of it"
        words += f"; {len(missing)} have no verdict and are left out" if missing else ""
        unsure = _uncertainty(criteria, parts)
        return Verdict(score=folded, value=folded, reason=words, how="rubric", uncertainty=unsure, parts=tuple(parts))

    def _chunks(self, places: Sequence[int]) -> list[Sequence[int]]:
        size = self._config.criteria_per_call
        size = len(places) if size == "all" else size
        return [places[start : start + size] for start in range(0, len(places), size)] if places else []

    def _plan(self, sample: Sample, criteria: Sequence[Criterion], form: Form) -> Ask | Verdict | Unscored:
        if self._asker.decides:
            queries = statements.queries(criteria, self._config.criteria)
            wording = Wording({}, Sampling(), unread, queries, functools.partial(_decided, criteria))
            planned = self._asker.plan(sample, form, wording)
            worths = ";".join([_worths(criterion) for criterion in criteria])
            return (
                replace(planned, facets=(*planned.facets, ("expected", worths)))
                if isinstance(planned, Ask)
                else planned
            )
        shape = statements.shape(criteria)
        # Probabilities only for a question of one criterion, in JSON: elsewhere its token is not the last word of the
        # reply.
        one = form == "schema" and self._config.criteria_per_call == 1 and bool(criteria)
        alone = one and self._has_probabilities(shape[0])
        sampling = self._samplings.get(shape) if form == "schema" else None
        if sampling is None:
            room = max(self._config.max_tokens, REPLY_TOKENS * len(criteria))
            schema = statements.schema(criteria) if form == "schema" else None
            sampling = sampling_for(self._config, room, schema, TOP_LOGPROBS if alone else 0)
            if form == "schema":
                self._samplings[shape] = sampling
        read = functools.partial(self._read, criteria, alone)
        planned = self._asker.plan(sample, form, Wording({STATEMENTS: statements.written(criteria)}, sampling, read))
        if isinstance(planned, Ask) and alone and criteria[0].choices:
            planned = replace(planned, facets=(*planned.facets, ("expected", _worths(criteria[0]))))
        if isinstance(planned, Ask) and form == "schema" and self._config.reply == "auto":
            other = functools.partial(self._plan, sample, criteria, "text")
            if not alone:
                return _in_text(planned, other)
            if self._scale.words is not False:
                return _in_text(planned, functools.partial(self._if_words, other))
        return planned

    def _has_probabilities(self, shape: tuple[int, bool]) -> bool:
        choices, may_not_apply = shape
        return not may_not_apply and (choices == 0 or (self._config.expected and choices <= MOST_CHOICES))

    def _if_words(self, other: Callable[[], Ask | Verdict | Unscored]) -> Ask | Verdict | Unscored:
        """The text form of a question asked alone, unless probabilities have come since it was planned."""
        if self._scale.words is False:
            detail = "no verdict in JSON, and a yes or no in text is on another scale than P(yes)"
            return Unscored(reason=Reason.SCHEMA, detail=detail)
        return other()

    def _read(
        self, criteria: Sequence[Criterion], alone: bool, said: str, request: Ask, reply: Reply
    ) -> Verdict | Unscored:
        found = statements.read(criteria, said, request)
        if isinstance(found, Unscored) or not alone:
            return found
        [criterion], [part] = criteria, found.parts
        level = str(criterion.choices.index(part.label)) if criterion.choices else ""
        place = (
            answer_token(reply.choices, level, AROUND_LEVEL, _ENDING)
            if level
            else answer_token(reply.choices, part.label, _AROUND_WORD)
        )
        self._scale.saw(place is not None)
        if self._scale.words:
            return found
        if place is None:
            detail = "the reply lacks usable log-probabilities, and a bare answer is on another scale than they are"
            return Unscored(reason=Reason.SCHEMA, detail=detail)
        assert isinstance(part.verdict, Verdict)
        likely = _mean(criterion, place) if level else weighed(place, part.label)
        if isinstance(likely, Unscored):
            return likely
        verdict = replace(likely, reason=part.verdict.reason)
        return Verdict(score=0.0, value=0.0, how="logprob", parts=(replace(part, verdict=verdict),))

    def _rate(self, kind: Kind, sample: Sample, criteria: Sequence[Criterion], form: Form) -> Deliberation:
        """All criteria in sight, one score for the whole."""
        text = "\n".join(_weighty(criterion) for criterion in criteria)
        planned = self._asker.plan(sample, form, Wording({STATEMENTS: text}, kind.sampling[form], kind.read))
        if not isinstance(planned, Ask):
            return (planned,)
        if form == "schema" and self._config.reply == "auto":
            in_text = Wording({STATEMENTS: text}, kind.sampling["text"], kind.read)
            planned = _in_text(planned, functools.partial(self._asker.plan, sample, "text", in_text))
        return (yield (planned,))


def _in_text(request: Ask, other: Callable[[], Ask | Verdict | Unscored]) -> Ask:
    """The question, with what it is in text form."""
    return replace(request, in_text=other)


def _kind(config: JudgeConfig) -> Kind:
    """The texts around the criteria."""
    if config.combined_by == "implicit":
        rated = score(config)
        return replace(
            rated, name="rubric_implicit/1", template=shipped("rubric_implicit"), needs=("response", STATEMENTS)
        )
    more = f"\n{config.criteria.strip()}" if config.criteria.strip() else ""
    return Kind(
        name="rubric/1",
        template=shipped("rubric"),
        needs=("response", STATEMENTS),
        values={"criteria": more},
        replies=shipped_replies("rubric"),
        # Of the real ones, what matters is in the criteria's own text, which is part of the key.
        sampling=forms_of(config, statements.schema((Criterion(""),))),
        facets=(("probabilities", "yes" if config.criteria_per_call == 1 else "no"),),
    )


def _decided(criteria: Sequence[Criterion], places: Sequence[TokenChoice]) -> Verdict | Unscored:
    """What a decision model says of all of them, as parts of one verdict."""
    parts = []
    for criterion, place in zip(criteria, places, strict=True):
        label = likeliest(place)
        part = _part(criterion, Verdict(score=0.0, value=0.0, how="logprob"))
        if label == statements.NOT_APPLICABLE:
            parts.append(replace(part, label=statements.NOT_APPLICABLE_LABEL, weight=0.0))
            continue
        rest = without(place, statements.NOT_APPLICABLE)
        met = _mean(criterion, rest) if criterion.choices else weighed(rest, label)
        if isinstance(met, Unscored):
            return met
        label = criterion.choices[int(label)] if criterion.choices else label
        parts.append(replace(part, verdict=replace(met, reason=""), label=label))
    return Verdict(score=0.0, value=0.0, how="logprob", parts=tuple(parts))


def _answered(criterion: Criterion, answer: Verdict | Unscored, number: int) -> Part:
    """One criterion's part of an answer to a question about several."""
    if isinstance(answer, Verdict):
        # Found by its place, and worth what it is here: an equal sentence may have another name, weight or value in the
        # rubric whose answer the cache holds.
        found = answer.parts[number]
        verdict, weight = found.verdict, criterion.weight
        if statements.does_not_apply(criterion, found.label):
            weight = 0.0
        elif found.label in criterion.choices and isinstance(verdict, Verdict) and verdict.how != "logprob":
            met = statements.worth(criterion, criterion.choices.index(found.label))
            verdict = replace(verdict, score=met, value=met)
        return replace(_part(criterion, verdict), label=found.label, weight=weight)
    return _part(criterion, answer)


def _mean(criterion: Criterion, place: TokenChoice) -> Verdict | Unscored:
    """The mean of what the choices are worth, by their probabilities."""
    worths = {str(number): statements.worth(criterion, number) for number in range(len(criterion.choices))}
    found = mean_of(place, worths)
    if isinstance(found, Unscored):
        return found
    return Verdict(score=found.mean, value=found.mean, how="logprob", uncertainty=found.deviation)


def _worths(criterion: Criterion) -> str:
    """What the choices are worth: a mean is of these alone, so verdicts of others must not be found in the cache."""
    return ",".join(repr(statements.worth(criterion, number)) for number in range(len(criterion.choices)))


def _uncertainty(criteria: Sequence[Criterion], parts: Sequence[Part]) -> float | None:
    """The weighted mean of the criteria's standard deviations; None unless the judge gave all as probabilities. A rule
    is certain."""
    total = spread = 0.0
    for criterion, part in zip(criteria, parts, strict=True):
        verdict = part.verdict
        if not part.weight or isinstance(verdict, Unscored):
            continue
        if verdict.how == "check":
            deviation = 0.0
        elif verdict.how == "logprob" and verdict.uncertainty is not None:
            deviation = verdict.uncertainty if criterion.choices else math.sqrt(verdict.value * (1 - verdict.value))
        else:
            return None
        total, spread = total + part.weight, spread + part.weight * deviation
    return spread / total if total else None


def _ruled(criterion: Criterion, verdict: Verdict | Unscored) -> Part:
    """A criterion that a rule has decided."""
    label = "" if isinstance(verdict, Unscored) else "yes" if verdict.value > PASSED else "no"
    return replace(_part(criterion, verdict), label=label)


def _part(criterion: Criterion, verdict: Verdict | Unscored) -> Part:
    return Part(
        name=criterion.name,
        verdict=verdict,
        weight=criterion.weight,
        text=criterion.text,
        good=criterion.true_is == "good",
    )


def _weighty(criterion: Criterion) -> str:
    """A criterion for a judge that weighs them itself."""
    side = "speaks for" if criterion.true_is == "good" else "speaks against"
    return f"- (weight {criterion.weight:g}, {side} the response if true) {scrub(criterion.text).strip()}"
