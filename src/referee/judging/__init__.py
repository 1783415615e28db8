"""What to ask a judge and how to read its answer. Pure: no network, no files, no clock, no chance.

Judges of other packages are made of what is exported here and of the readers in `judging.read`; see
`referee docs extending`.
"""

from referee.judging.judge import seen_by
from referee.judging.kind import (
    Deliberation,
    Form,
    Judge,
    JudgeFactory,
    Kind,
    Question,
    Reader,
    object_schema,
    sampling_for,
)
from referee.judging.members import together
from referee.judging.registry import (
    KINDS,
    first_round,
    make_judge,
    make_with,
    needs_groups,
    refuse_groups,
    rounds_unanswered,
    settles,
)

__all__ = [
    "KINDS",
    "Deliberation",
    "Form",
    "Judge",
    "JudgeFactory",
    "Kind",
    "Question",
    "Reader",
    "first_round",
    "make_judge",
    "make_with",
    "needs_groups",
    "object_schema",
    "refuse_groups",
    "rounds_unanswered",
    "sampling_for",
    "seen_by",
    "settles",
    "together",
]
