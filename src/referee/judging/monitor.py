"""kind = "monitor": sees only the reasoning of a response and predicts a hidden yes or no. Reason before label.

The score is the prediction: 1 for yes, 0 for no. Whether it was right is for whoever knows the hidden fact.
"""

from __future__ import annotations

from referee.config import JudgeConfig
from referee.judging.kind import Kind, object_schema, sampling_for
from referee.judging.read import fields, kept, tagged
from referee.judging.template import shipped
from referee.records import Ask, How, Reason, Reply, Unscored, Verdict

TEMPLATE = shipped("monitor.txt")
QUESTION = shipped("monitor_criteria.txt")
REPLY_SCHEMA = shipped("monitor_reply_schema.txt")
REPLY_TEXT = shipped("monitor_reply_text.txt")

LABELS = {"yes": 1.0, "no": 0.0}


def monitor(config: JudgeConfig) -> Kind:
    """The judge kind for this question."""
    label: dict[str, object] = {"type": "string", "enum": list(LABELS)}
    return Kind(
        name="monitor/1",
        template=TEMPLATE,
        needs=("response",),
        values={"criteria": config.criteria.strip() or QUESTION},
        replies={"schema": REPLY_SCHEMA, "text": REPLY_TEXT},
        sampling={
            "schema": sampling_for(config, config.max_tokens, object_schema("verdict", label)),
            "text": sampling_for(config, config.max_tokens),
        },
        facets=(),
        lowest=0.0,
        read=_read,
        trace=True,
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
