"""Fixed-window limits on requests and tokens, and their headers. Times are arguments; nothing waits."""

from __future__ import annotations

import math
from email.utils import formatdate

from referee.sim.spec import ProviderSpec, RetryAfter

FAR_FUTURE_S = 1e9
"""Retry-After of a server with a broken clock."""


class Window:
    """A counter that resets every `seconds`."""

    def __init__(self, per_minute: int, seconds: float) -> None:
        self.limit = max(1, int(per_minute * seconds / 60))
        self._seconds = seconds
        self._index = 0
        self._used = 0

    def remaining(self, at: float) -> int:
        """What is left of the window at `at`."""
        index = int(at // self._seconds)
        if index != self._index:
            self._index, self._used = index, 0
        return self.limit - self._used

    def take(self, at: float, amount: int) -> None:
        """Count `amount`; the caller has checked `remaining`."""
        left = self.remaining(at)
        self._used = self.limit - left + amount

    def reset(self, at: float) -> float:
        """Seconds from `at` to the next window."""
        return self._seconds - at % self._seconds

    def __repr__(self) -> str:
        return f"Window({self._used}/{self.limit} in {self._seconds:g} s)"


class Rates:
    """The provider's requests and tokens per window."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._requests = Window(spec.rpm, spec.window) if spec.rpm is not None else None
        self._tokens = Window(spec.tpm, spec.window) if spec.tpm is not None else None
        self._shown = spec.rate_headers
        self._scale = spec.time_scale

    def admit(self, at: float, tokens: int) -> float | None:
        """Count one request and its tokens. If they do not fit, count nothing and return the seconds to the reset."""
        wait: float | None = None
        if self._requests is not None and self._requests.remaining(at) < 1:
            wait = self._requests.reset(at)
        if self._tokens is not None and self._tokens.remaining(at) < tokens:
            wait = self._tokens.reset(at)
        if wait is None:
            if self._requests is not None:
                self._requests.take(at, 1)
            if self._tokens is not None:
                self._tokens.take(at, tokens)
        return wait

    def headers(self, at: float) -> dict[str, str]:
        """The x-ratelimit-* headers; empty without limits."""
        found: dict[str, str] = {}
        if not self._shown:
            return found
        for name, window in (("requests", self._requests), ("tokens", self._tokens)):
            if window is not None:
                found[f"x-ratelimit-limit-{name}"] = str(window.limit)
                found[f"x-ratelimit-remaining-{name}"] = str(window.remaining(at))
                found[f"x-ratelimit-reset-{name}"] = duration(window.reset(at) / self._scale)
        return found


def duration(seconds: float) -> str:
    """Seconds the way OpenAI writes them in headers: 17ms, 8.64s, 6m0s, 1h2m3s. Rounded up."""
    millis = math.ceil(seconds * 1000 - 1e-6)
    if millis < 1000:
        return f"{millis}ms"
    minutes, millis = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{text}{millis / 1000:g}s"


def retry_after(form: RetryAfter, seconds: float, wall: float) -> dict[str, str]:
    """A Retry-After header in the given form. `wall`: seconds since the epoch."""
    match form:
        case "seconds":
            return {"retry-after": str(math.ceil(seconds))}
        case "float":
            return {"retry-after": f"{seconds:.3f}"}
        case "ms":
            return {"retry-after-ms": str(math.ceil(seconds * 1000))}
        case "date":
            return {"retry-after": formatdate(math.ceil(wall + seconds), usegmt=True)}
        case "junk":
            return {"retry-after": "soon"}
        case "negative":
            return {"retry-after": "-5"}
        case "far":
            return {"retry-after": str(int(FAR_FUTURE_S))}
        case "none":
            return {}
