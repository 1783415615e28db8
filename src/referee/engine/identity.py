"""Which model answers at an endpoint, and when that changes: a router takes another provider, a model is replaced.

Pure: no clock, no I/O.
"""

from __future__ import annotations

from msgspec import Struct

from referee.records import Reply

MAX_CHANGES = 20
"""Of one endpoint that are told. A server with more faces than this has said nothing by them."""


class ModelIdentity(Struct, frozen=True, array_like=True, gc=False, order=True):
    """What a reply says of its origin; empty where it says nothing."""

    model: str = ""
    provider: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        by = f" by {_shown(self.provider)}" if self.provider else ""
        fingerprint = f" (fingerprint {_shown(self.fingerprint)})" if self.fingerprint else ""
        return f"{_shown(self.model) or 'an unnamed model'}{by}{fingerprint}"


class Change(Struct, frozen=True, array_like=True, gc=False):
    """Another one answered than before."""

    endpoint: str
    before: ModelIdentity
    after: ModelIdentity
    wall: float = 0.0


class Identity:
    """The latest origin of one endpoint's replies. Two that take turns, as replicas do, are one change."""

    __slots__ = ("_last", "_told")

    def __init__(self) -> None:
        self._last: ModelIdentity | None = None
        self._told: set[tuple[ModelIdentity, ModelIdentity]] = set()

    def seen(self, reply: Reply) -> tuple[ModelIdentity, ModelIdentity] | None:
        """The origin before and now, the first time that this pair is seen; else None.

        What a reply does not say counts as unchanged: a fingerprint that is left out now and then is no change.
        """
        last = self._last
        if last is None:
            self._last = ModelIdentity(reply.model, reply.provider, reply.fingerprint)
            return None
        model, provider = reply.model or last.model, reply.provider or last.provider
        fingerprint = reply.fingerprint or last.fingerprint
        if (model, provider, fingerprint) == (last.model, last.provider, last.fingerprint):
            return None
        now = self._last = ModelIdentity(model, provider, fingerprint)
        if not (_fits(last.model, model) and _fits(last.provider, provider) and _fits(last.fingerprint, fingerprint)):
            pair = (min(last, now), max(last, now))
            if pair not in self._told and len(self._told) < MAX_CHANGES:
                self._told.add(pair)
                return last, now
        return None


def _shown(text: str) -> str:
    """A server's word, for a log: one line, not long."""
    return "".join(character if character.isprintable() else "?" for character in text[:80])


def _fits(before: str, now: str) -> bool:
    """Nothing was known before, or it is the same."""
    return not before or before == now
