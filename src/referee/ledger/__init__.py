"""The append-only record of every verdict: lines, writer, reader, metrics. See docs/metrics.md for the names."""

from referee.ledger.lines import (
    MAX_LINE,
    AskLine,
    BatchLine,
    ChangeLine,
    JudgeLine,
    LimitsLine,
    Line,
    RewardLine,
    RunLine,
    TextLine,
    VerdictLine,
    ask_line,
    common_step,
    judge_line,
    judges_in,
    reward_line,
    verdict_line,
)
from referee.ledger.metrics import Tally
from referee.ledger.reader import Reading, read
from referee.ledger.writer import Ledger, NullLedger, open_ledger

__all__ = [
    "MAX_LINE",
    "AskLine",
    "BatchLine",
    "ChangeLine",
    "JudgeLine",
    "Ledger",
    "LimitsLine",
    "Line",
    "NullLedger",
    "Reading",
    "RewardLine",
    "RunLine",
    "Tally",
    "TextLine",
    "VerdictLine",
    "ask_line",
    "common_step",
    "judge_line",
    "judges_in",
    "open_ledger",
    "read",
    "reward_line",
    "verdict_line",
]
