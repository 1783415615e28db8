"""referee: an LLM judge as an RL reward, without making the GPU wait."""

from typing import TYPE_CHECKING, Any

from referee.config import Config
from referee.errors import (
    ConfigError,
    EndpointClosed,
    InputError,
    MissingKeyError,
    RefereeError,
    RewardHacked,
    TicketCancelled,
    TicketTimeout,
    TooManyUnscored,
    UnscoredError,
    WrongContext,
)
from referee.records import (
    Criterion,
    Media,
    Message,
    Reason,
    Reward,
    Sample,
    Settled,
    Tool,
    ToolCall,
    Unscored,
    Verdict,
)
from referee.rollouts import read_text
from referee.version import VERSION as __version__

if TYPE_CHECKING:
    from referee.referee import Referee
    from referee.tables import rewards_to_pandas, score_table
    from referee.ticket import Ticket

__all__ = [
    "Config",
    "ConfigError",
    "Criterion",
    "EndpointClosed",
    "InputError",
    "Media",
    "Message",
    "MissingKeyError",
    "Reason",
    "Referee",
    "RefereeError",
    "Reward",
    "RewardHacked",
    "Sample",
    "Settled",
    "Ticket",
    "TicketCancelled",
    "TicketTimeout",
    "TooManyUnscored",
    "Tool",
    "ToolCall",
    "Unscored",
    "UnscoredError",
    "Verdict",
    "WrongContext",
    "__version__",
    "read_text",
    "rewards_to_pandas",
    "score_table",
]


def __getattr__(name: str) -> Any:
    """The engine behind Referee is loaded when it is first asked for: importing the package alone stays cheap."""
    if name == "Referee":
        from referee.referee import Referee

        return Referee
    if name == "Ticket":
        from referee.ticket import Ticket

        return Ticket
    if name in ("rewards_to_pandas", "score_table"):
        from referee import tables

        return getattr(tables, name)
    raise AttributeError(f"module 'referee' has no attribute {name!r}")
