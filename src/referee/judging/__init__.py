"""What to ask a judge and how to read its answer. Pure: no network, no files, no clock, no chance."""

from referee.judging.groups import GROUP_JUDGES, MakeJudge, needs_groups, refuse_groups
from referee.judging.judge import make_judge, seen_by
from referee.judging.kind import Deliberation, Form, Judge
from referee.judging.read import read_integer
from referee.judging.together import together

__all__ = [
    "GROUP_JUDGES",
    "Deliberation",
    "Form",
    "Judge",
    "MakeJudge",
    "make_judge",
    "needs_groups",
    "read_integer",
    "refuse_groups",
    "seen_by",
    "together",
]
