"""The append-only record of every verdict: lines, writer, reader, metrics. See `referee docs metrics` for the names."""

from referee.ledger.build_lines import ask_line, common_step, judge_line, reward_line, verdict_line
from referee.ledger.lines import (
    MAX_LINE,
    AlarmLine,
    AskLine,
    AuditLine,
    BatchLine,
    ChangeLine,
    JudgeLine,
    LimitsLine,
    Line,
    MeasuresLine,
    NoteLine,
    RewardLine,
    RunLine,
    TextLine,
    TotalLine,
    VerdictLine,
    judges_in,
)
from referee.ledger.metrics import Tally
from referee.ledger.reader import Reading, read
from referee.ledger.writer import Ledger, NullLedger, open_ledger

__all__ = [
    "MAX_LINE",
    "AlarmLine",
    "AskLine",
    "AuditLine",
    "BatchLine",
    "ChangeLine",
    "JudgeLine",
    "Ledger",
    "LimitsLine",
    "Line",
    "MeasuresLine",
    "NoteLine",
    "NullLedger",
    "Reading",
    "RewardLine",
    "RunLine",
    "Tally",
    "TextLine",
    "TotalLine",
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
