"""What may be sent to an endpoint: concurrency, rates, budget, circuit breaker. Pure: no clock, no task, no lock."""

from referee.limits.adaptive import AdaptiveLimit, make_limit
from referee.limits.backoff import retry_delay
from referee.limits.breaker import Breaker
from referee.limits.bucket import Bucket
from referee.limits.budget import Budget
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
    "make_limit",
    "retry_delay",
]
