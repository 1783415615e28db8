"""The dialects under contract. Requests are written byte for byte, answers as the providers document them."""

from __future__ import annotations

from tests.contracts.dialect_anthropic import ANTHROPIC
from tests.contracts.dialect_chat import CHAT
from tests.contracts.dialect_gemini import GEMINI
from tests.contracts.dialect_responses import RESPONSES
from tests.contracts.dialect_suite import Case

CASES: tuple[Case, ...] = (
    ANTHROPIC,
    CHAT,
    GEMINI,
    RESPONSES,
)
