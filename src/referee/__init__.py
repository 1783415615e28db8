"""referee: an LLM judge as an RL reward, without making the GPU wait."""

from referee.config import Config
from referee.errors import (
    ConfigError,
    EndpointClosed,
    InputError,
    MissingKeyError,
    RefereeError,
    TicketCancelled,
    TicketTimeout,
    TooManyUnscored,
    UnscoredError,
    WrongContext,
)
from referee.records import Reason, Reward, Sample, Unscored, Verdict
from referee.referee import Referee
from referee.ticket import Ticket
from referee.version import VERSION as __version__

__all__ = [
    "Config",
    "ConfigError",
    "EndpointClosed",
    "InputError",
    "MissingKeyError",
    "Reason",
    "Referee",
    "RefereeError",
    "Reward",
    "Sample",
    "Ticket",
    "TicketCancelled",
    "TicketTimeout",
    "TooManyUnscored",
    "Unscored",
    "UnscoredError",
    "Verdict",
    "WrongContext",
    "__version__",
]
