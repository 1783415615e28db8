"""Every exception referee raises, and what their messages share.

    RefereeError
    ├── ConfigError            a setting is wrong, missing or unknown: nothing was spent
    │   └── MissingKeyError    the judge's API key is not where the configuration says
    ├── InputError             a sample or a line of input cannot be used: nothing was spent
    ├── UnscoredError          rewards are missing and `[missing] policy` says to stop
    │   └── TooManyUnscored    the share of unscored samples passed `[missing] abort_above`
    ├── RewardHacked           an alarm of the audit, and `[audit] on_alarm` says to stop
    ├── EndpointClosed         no endpoint can answer: bad key, no quota, unknown model, unreachable
    ├── TicketTimeout          the caller's own timeout ran out; the work goes on (also a TimeoutError)
    ├── TicketCancelled        the work was cancelled or the Referee was closed
    └── WrongContext           a call that would deadlock: from the engine's own loop, or across a fork

A message says what happened, what it means for the reward, and which setting to change. All of them pickle:
one positional message, the rest keywords with defaults. No message ever holds a key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

NEAR = 0.5
"""How like a known name a wrong one must be to be taken for it (difflib's ratio)."""


def nearest(name: object, known: Iterable[str], mark: str = "'") -> str:
    """What messages say after a name that is not known: the one that may be meant, else all there are."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=NEAR)
    return f" Did you mean {mark}{close[0]}{mark}?" if close else f" Known here: {', '.join(names)}."


def install(extra: str) -> str:
    """What messages say about a missing extra."""
    return f'pip install "llm-referee[{extra}]" (in a clone: pip install ".[{extra}]")'


class RefereeError(Exception):
    """Base of everything referee raises."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        for name, value in details.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args[0] if self.args else "", dict(self.__dict__))


def _rebuild(kind: type[RefereeError], message: str, details: dict[str, Any]) -> RefereeError:
    return kind(message, **details)


class ConfigError(RefereeError):
    """A setting is wrong, missing or unknown."""

    setting: str = ""


Refuse = Callable[[str, str], ConfigError]
"""Makes the error about a setting, of its name and what is wrong with it."""


class MissingKeyError(ConfigError):
    """The judge's API key is not where the configuration says it is."""


class InputError(RefereeError):
    """A sample or a line of input cannot be used."""

    line: int = 0
    field: str = ""


class UnscoredError(RefereeError):
    """Rewards are missing and the policy is to stop. `rewards` holds what there is, in the caller's order."""

    rewards: Any = None


class TooManyUnscored(UnscoredError):
    """The share of unscored samples passed the limit."""


class RewardHacked(RefereeError):
    """The audit holds the reward to be gamed. `alarm` says by what; `rewards` holds what would have been handed out."""

    alarm: Any = None
    rewards: Any = None


class EndpointClosed(RefereeError):
    """No endpoint can answer. `reason` is a value of `Reason`; `rewards` holds what there is."""

    reason: str = ""
    rewards: Any = None


class TicketTimeout(RefereeError, TimeoutError):
    """The caller's timeout expired. The work goes on: ask again, or cancel."""


class TicketCancelled(RefereeError):
    """The work was cancelled, or the Referee was closed before it finished."""


class WrongContext(RefereeError):
    """A blocking call that would deadlock."""
