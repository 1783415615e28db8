"""A rubric's criteria as questions to a judge, and its answers read back. Strict: every criterion exactly once, with a
verdict that was offered, or nothing of the reply counts.

The judge is asked only whether a sentence is literally true. Labels of choices are asked for as numbers, because a
verdict in the candidate's own text is recognised, and broken, by the values our schemas offer (`lookalike`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from referee.judging.decision import ABOUT
from referee.judging.guard import scrub
from referee.judging.kind import closed_schema, object_schema
from referee.judging.read import integer as as_integer
from referee.judging.read import json_object, kept, pairs_in, whole
from referee.records import Ask, Criterion, How, Part, Query, Reason, Unscored, Verdict

YES, NO, NOT_APPLICABLE = "yes", "no", "na"
NOT_APPLICABLE_LABEL = "not applicable"


def names(count: int) -> list[str]:
    """What the criteria of one question are called in it."""
    return [f"c{number + 1}" for number in range(count)]


def written(criteria: Sequence[Criterion]) -> str:
    """The criteria, each with the answers it takes. Their words are the trainer's, and believed."""
    lines = []
    for name, criterion in zip(names(len(criteria)), criteria, strict=True):
        text = scrub(criterion.text).strip().replace("\n", "\n   ")
        lines += [f"{name}. {text}", f"   Verdict: {_offered(criterion)}."]
    return "\n".join(lines)


def queries(criteria: Sequence[Criterion], more: str = "") -> tuple[Query, ...]:
    """The same for a decision model, whose answers are the numbers of choices. `more`: what else the judge is told."""
    lead = f"{more.strip()}\n{ABOUT}" if more.strip() else ABOUT
    return tuple(
        [
            Query(
                name,
                f"{lead} is this statement literally true of it?\n{scrub(criterion.text).strip()}",
                tuple([scrub(choice) for choice in criterion.choices]),
                criterion.may_not_apply,
            )
            for name, criterion in zip(names(len(criteria)), criteria, strict=True)
        ]
    )


def schema(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """A JSON object with a key for each criterion; under it the reason, then the verdict."""
    ids = names(len(criteria))
    return closed_schema({name: _one(criterion) for name, criterion in zip(ids, criteria, strict=True)})


def shape(criteria: Sequence[Criterion]) -> tuple[tuple[int, bool], ...]:
    """What the schema depends on: equal shapes have equal schemas, which providers compile once."""
    return tuple([(len(criterion.choices), criterion.may_not_apply) for criterion in criteria])


def read(criteria: Sequence[Criterion], said: str, request: Ask) -> Verdict | Unscored:
    """The verdicts, as parts of one. Its own score is 0: what they are worth together is for the rubric to say."""
    if request.sampling.schema is None:
        given = _from_tag(said, request.nonce)
        how: How = "tag"
    else:
        given, how = _from_json(said), "schema"
    if isinstance(given, Unscored):
        return given
    ids = names(len(criteria))
    if list(given) != ids and set(given) != set(ids):
        missing = [name for name in ids if name not in given]
        wrong = f"{', '.join(missing[:5])} missing" if missing else "an unknown one"
        return Unscored(reason=Reason.SCHEMA, detail=f"the reply must hold each criterion once: {wrong}")
    parts = []
    for name, criterion in zip(ids, criteria, strict=True):
        words, value = given[name]
        part = _part(criterion, value, words, how)
        if part is None:
            return Unscored(reason=Reason.SCHEMA, detail=f"the verdict on {name} is none of: {_offered(criterion)}")
        parts.append(part)
    return Verdict(score=0.0, value=0.0, how=how, parts=tuple(parts))


def worth(criterion: Criterion, choice: int) -> float:
    """What the choice of this number says: how far the criterion is met."""
    return criterion.values[choice] if criterion.values else choice / (len(criterion.choices) - 1)


def does_not_apply(criterion: Criterion, label: str) -> bool:
    """Whether a label says so. A choice of the user's own may be called the same."""
    return label == NOT_APPLICABLE_LABEL and criterion.may_not_apply and label not in criterion.choices


def _part(criterion: Criterion, value: object, words: str, how: How) -> Part | None:
    """The verdict on one criterion; None if it was not offered."""
    label, met = "", 0.0
    if value == NOT_APPLICABLE and criterion.may_not_apply:
        label = NOT_APPLICABLE_LABEL
    elif criterion.choices:
        number = whole(value)
        if number is None or not 0 <= number < len(criterion.choices):
            return None
        label, met = criterion.choices[number], worth(criterion, number)
    elif value in (YES, NO) and isinstance(value, str):
        label, met = value, float(value == YES)
    else:
        return None
    weight = 0.0 if does_not_apply(criterion, label) else criterion.weight
    verdict = Verdict(score=met, value=met, reason=kept(words), how=how)
    return Part(
        name=criterion.name,
        verdict=verdict,
        weight=weight,
        text=criterion.text,
        label=label,
        good=criterion.true_is == "good",
    )


def _from_tag(said: str, nonce: str) -> dict[str, tuple[str, object]] | Unscored:
    pairs = pairs_in(said, nonce, "c[1-9][0-9]*", "c1=yes")
    if isinstance(pairs, Unscored):
        return pairs
    found: dict[str, tuple[str, object]] = {}
    for name, words, verdict in pairs:
        if name in found:
            return Unscored(reason=Reason.AMBIGUOUS, detail=f"{name} stands twice in the verdict tag")
        number = as_integer(verdict)
        found[name] = (words, verdict.lower() if number is None else number)
    return found


def _from_json(said: str) -> dict[str, tuple[str, object]] | Unscored:
    value = json_object(said)
    if isinstance(value, Unscored):
        return value
    found: dict[str, tuple[str, object]] = {}
    for name, inner in value.items():
        if not isinstance(inner, dict) or inner.keys() != {"reason", "verdict"} or not isinstance(inner["reason"], str):
            return Unscored(
                reason=Reason.SCHEMA, detail="each criterion must hold `reason` and `verdict`, nothing else"
            )
        found[name] = (inner["reason"], inner["verdict"])
    return found


def _one(criterion: Criterion) -> dict[str, Any]:
    labels: list[str | int] = [*range(len(criterion.choices))] if criterion.choices else [YES, NO]
    if criterion.may_not_apply:
        labels.append(NOT_APPLICABLE)
    kinds = sorted({"integer" if isinstance(label, int) else "string" for label in labels})
    return object_schema("verdict", {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": labels})


def _offered(criterion: Criterion) -> str:
    choices = [f"{number} ({scrub(label)})" for number, label in enumerate(criterion.choices)]
    offered = ["a number: " + ", ".join(choices)] if choices else [YES, NO]
    if criterion.may_not_apply:
        offered.append(f"{NOT_APPLICABLE} if the statement cannot apply to this response")
    return " or ".join([", ".join(offered[:-1]), offered[-1]]) if len(offered) > 2 else " or ".join(offered)
