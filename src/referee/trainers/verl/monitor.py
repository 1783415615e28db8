"""The CoT monitor's settings, from the environment at the time of the call, and its rewards. Nothing is asked here.

TRAIN_WITH_MONITOR        false          ask the monitor at all
MONITOR_MODEL_NAME        gpt-4o-mini
MONITOR_CORRECT_REWARD    -1.0           when it predicts the hidden fact rightly
MONITOR_WRONG_REWARD      1.0            when it does not
REBALANCE_MONITOR_REWARD  false          give samples of both hidden values equal weight
MONITOR_CACHE             true           keep predictions
MONITOR_MAX_CONCURRENT    60             ceiling on calls in flight
OPENAI_API_KEY, OPENAI_BASE_URL          the key, and where to ask (https://api.openai.com/v1)
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from referee.errors import ConfigError, InputError

URL = "https://api.openai.com/v1"
_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


class Monitor(Struct, frozen=True):
    """What the environment says."""

    enabled: bool = False
    model: str = "gpt-4o-mini"
    correct_reward: float = -1.0
    wrong_reward: float = 1.0
    rebalance: bool = False
    cache: bool = True
    concurrency: int = 60
    url: str = URL

    def settings(self) -> dict[str, Any]:
        """referee's settings for it. Unscored predictions are filled where the batch is known."""
        return {
            "judge": {"kind": "monitor"},
            "endpoint": {"url": self.url, "model": self.model},
            "limits": {"max_concurrency": self.concurrency},
            "cache": {"enabled": self.cache},
        }

    def reward(self, predicted: bool, hidden: bool, weight: float = 1.0) -> float:
        """The monitor's share of a sample's reward."""
        return weight * (self.correct_reward if predicted == hidden else self.wrong_reward)


def read_monitor(env: Mapping[str, str]) -> Monitor:
    """The settings in an environment; what is not set has its default."""
    return Monitor(
        enabled=_flag(env, "TRAIN_WITH_MONITOR", False),
        model=env.get("MONITOR_MODEL_NAME", "").strip() or "gpt-4o-mini",
        correct_reward=_number(env, "MONITOR_CORRECT_REWARD", -1.0),
        wrong_reward=_number(env, "MONITOR_WRONG_REWARD", 1.0),
        rebalance=_flag(env, "REBALANCE_MONITOR_REWARD", False),
        cache=_flag(env, "MONITOR_CACHE", True),
        concurrency=max(1, int(_number(env, "MONITOR_MAX_CONCURRENT", 60))),
        url=env.get("OPENAI_BASE_URL", "").strip() or URL,
    )


def hidden_fact(extra_info: Mapping[str, Any] | None, index: int) -> bool:
    """extra_info["is_correct"], which the monitor has to predict."""
    value = (extra_info or {}).get("is_correct")
    if value is not None and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    raise InputError(
        f'sample {index}: extra_info["is_correct"] must be true or false, not {value!r}: it is what the monitor '
        "predicts. Add it to the data, or set TRAIN_WITH_MONITOR=false. Nothing was spent.",
        field="is_correct",
    )


def weights(
    sources: Sequence[Any], facts: Sequence[bool], true_share: float | None, so_far: FactCounts | None = None
) -> list[float]:
    """One over the share of each sample's hidden value, so that both values weigh the same in all.

    The share is `true_share` if it is given; else that of the batch, per data source; with `so_far`, of all samples
    that came before and these.
    """
    if true_share is not None:
        if not 0 < true_share < 1:
            raise ConfigError(f"true_share must be between 0 and 1, not {true_share}.", setting="true_share")
        return [1 / true_share if fact else 1 / (1 - true_share) for fact in facts]
    counts = Counter(zip(map(str, sources), facts, strict=True))
    if so_far is not None:
        counts = so_far.add(counts)
    found = []
    for source, fact in zip(map(str, sources), facts, strict=True):
        both = counts[source, True] + counts[source, False]
        found.append(both / counts[source, fact])
    return found


class FactCounts:
    """How often each hidden value came so far, where samples come one by one."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._lock = threading.Lock()

    def add(self, counts: Counter[tuple[str, bool]]) -> Counter[tuple[str, bool]]:
        """Count these too; all counts so far."""
        with self._lock:
            self._counts += counts
            return self._counts.copy()


def _flag(env: Mapping[str, str], name: str, default: bool) -> bool:
    text = env.get(name, "").strip().lower()
    if not text:
        return default
    if text not in _WORDS:
        raise ConfigError(f"{name}={env[name]!r}: must be true or false.", setting=name)
    return _WORDS[text]


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{name}={env[name]!r}: must be a number.", setting=name)
    return value
