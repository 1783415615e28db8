"""Samples out of JSON Lines, and text out of every common format of chat messages."""

from referee.rollouts.columns import Doubt, doubtful_columns, unread_columns
from referee.rollouts.file import (
    BOM,
    check_file,
    first_rows,
    not_text,
    open_rollouts,
    read_line,
    read_rollouts,
    unreadable,
)
from referee.rollouts.messages import MessageError, read_text, read_tools
from referee.rollouts.row import ALIASES, NEEDED, BadLine
from referee.rollouts.turns import Turn, last_user, media_in, own_words, plain, turns_of

__all__ = [
    "ALIASES",
    "BOM",
    "NEEDED",
    "BadLine",
    "Doubt",
    "MessageError",
    "Turn",
    "check_file",
    "doubtful_columns",
    "first_rows",
    "last_user",
    "media_in",
    "not_text",
    "open_rollouts",
    "own_words",
    "plain",
    "read_line",
    "read_rollouts",
    "read_text",
    "read_tools",
    "turns_of",
    "unread_columns",
    "unreadable",
]
