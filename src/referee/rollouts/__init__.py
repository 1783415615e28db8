"""Samples out of JSON Lines, text out of every common format of chat messages, criteria out of every one of rubrics."""

from referee.rollouts.columns import Doubt, doubtful_columns, polarity_of_rows, unread_columns
from referee.rollouts.criteria import Polarity, RubricError
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
from referee.rollouts.images import Image, media_of, read_image
from referee.rollouts.messages import MessageError, read_text, read_tools
from referee.rollouts.phrasing import PolarityReport, polarity_report
from referee.rollouts.reading import ReadError
from referee.rollouts.row import ALIASES, NEEDED, BadLine
from referee.rollouts.rubric import find_rubric, named_apart, read_rubric, read_rubric_file, rubric_of
from referee.rollouts.turns import Turn, last_user, media_in, own_words, plain, turns_of
from referee.rollouts.write import more_of

__all__ = [
    "ALIASES",
    "BOM",
    "NEEDED",
    "BadLine",
    "Doubt",
    "Image",
    "MessageError",
    "Polarity",
    "PolarityReport",
    "ReadError",
    "RubricError",
    "Turn",
    "check_file",
    "doubtful_columns",
    "find_rubric",
    "first_rows",
    "last_user",
    "media_in",
    "media_of",
    "more_of",
    "named_apart",
    "not_text",
    "open_rollouts",
    "own_words",
    "plain",
    "polarity_of_rows",
    "polarity_report",
    "read_image",
    "read_line",
    "read_rollouts",
    "read_rubric",
    "read_rubric_file",
    "read_text",
    "read_tools",
    "rubric_of",
    "turns_of",
    "unread_columns",
    "unreadable",
]
