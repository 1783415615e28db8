"""kind = "reference": does the response agree with the known answer. A label of two, reason before label."""

from __future__ import annotations

from referee.config import JudgeConfig
from referee.judging.kind import Kind, object_schema, sampling_for
from referee.judging.read import fields, kept, tagged
from referee.judging.template import shipped
from referee.records import Ask, How, Reason, Reply, Unscored, Verdict

TEMPLATE = shipped("reference.txt")
CRITERIA = shipped("reference_criteria.txt")
REPLY_SCHEMA = shipped("reference_reply_schema.txt")
REPLY_TEXT = shipped("reference_reply_text.txt")

LABELS = {"correct": 1.0, "incorrect": 0.0}


def reference(config: JudgeConfig) -> Kind:
    """The judge kind that compares with a reference."""
    label: dict[str, object] = {"type": "string", "enum": list(LABELS)}
    return Kind(
        name="reference/1",
        template=TEMPLATE,
        needs=("reference", "response"),
        values={"criteria": config.criteria.strip() or CRITERIA},
        replies={"schema": REPLY_SCHEMA, "text": REPLY_TEXT},
        sampling={
            "schema": sampling_for(config, config.max_tokens, object_schema("verdict", label)),
            "text": sampling_for(config, config.max_tokens),
        },
        facets=(),
        lowest=0.0,
        read=_read,
    )


def _read(said: str, request: Ask, _: Reply) -> Verdict | Unscored:
    if request.sampling.schema is None:
        found = tagged(said, request.nonce)
        if isinstance(found, Unscored):
            return found
        words, inside = found
        return _verdict(inside.lower(), words, "tag", Reason.NO_VERDICT)
    given = fields(said, "verdict")
    if isinstance(given, Unscored):
        return given
    words, value = given
    return _verdict(value, words, "schema", Reason.SCHEMA)


def _verdict(label: object, words: str, how: How, otherwise: Reason) -> Verdict | Unscored:
    value = LABELS.get(label) if isinstance(label, str) else None
    if value is None:
        return Unscored(reason=otherwise, detail=f"the verdict is none of: {', '.join(LABELS)}")
    return Verdict(score=value, value=value, reason=kept(words), how=how)
