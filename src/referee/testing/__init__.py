"""For authors of judges and dialects: test them without a network, a key or a model. See `referee docs extending`."""

from referee.sim.chat import Question
from referee.sim.judge import write
from referee.sim.spec import ProviderSpec
from referee.testing.dialects import check_dialect
from referee.testing.judges import Deliberated, build_judge, check_judge, deliberate
from referee.testing.provider import fake_referee

__all__ = [
    "Deliberated",
    "ProviderSpec",
    "Question",
    "build_judge",
    "check_dialect",
    "check_judge",
    "deliberate",
    "fake_referee",
    "write",
]
