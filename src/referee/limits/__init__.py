"""How hard to press an endpoint: concurrency, pace, money, health. Pure: no clock, no task, no lock."""

from referee.limits.adaptive import AdaptiveLimit
from referee.limits.breaker import Breaker
from referee.limits.bucket import Bucket
from referee.limits.budget import Budget
from referee.limits.delay import retry_delay
from referee.limits.fair_queue import FairQueue
from referee.limits.limit import FixedLimit, Limit, Outcome, Stamp
from referee.limits.stragglers import Stragglers

__all__ = [
    "AdaptiveLimit",
    "Breaker",
    "Bucket",
    "Budget",
    "FairQueue",
    "FixedLimit",
    "Limit",
    "Outcome",
    "Stamp",
    "Stragglers",
    "retry_delay",
]
