"""Groups in verl's reward loop that a judge compares as a whole: one worker judges all siblings and gives each its
outcome. What travels between workers is msgpack: samples there, outcomes back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee.config import Config, all_judges
from referee.errors import RefereeError
from referee.records import Reward, Sample
from referee.runtime.messages import encode
from referee.scoring.batch import checked
from referee.scoring.messages import Fault

UNJUDGED = {
    "lost": "no worker that judges its group has answered: see the logs of the other reward workers",
    "full": "the group coordinator has no memory left for its text: rollouts arrive faster than groups are judged",
}
"""Why a rollout was not judged, by `End.why`."""


class Outcome(Struct, frozen=True, array_like=True, tag=1):
    """What one rollout of a group gets."""

    reward: Reward
    value: float | None
    """The number for verl. None: there is none."""
    terms: dict[str, float]
    """As `columns.terms_filled` gives them."""


class Stopped(Struct, frozen=True, array_like=True, tag=2):
    """The outcome of all of them where judging has raised."""

    fault: Fault


_samples = msgspec.msgpack.Decoder(Sample)
_outcomes: msgspec.msgpack.Decoder[Outcome | Stopped] = msgspec.msgpack.Decoder(Outcome | Stopped)


def packed_sample(sample: Sample, config: Config) -> bytes:
    """A sample that can travel. One that cannot be judged is refused here, where only its own rollout fails."""
    (plain,) = checked((sample,), any(judge.parts == "refuse" for judge in all_judges(config.judge)))
    return encode(plain)


def unpacked_samples(texts: Mapping[str, bytes]) -> list[Sample]:
    """The samples of a group, in the order of their texts: the same one however they arrive."""
    return [_samples.decode(data) for data in sorted(texts.values())]


def packed_outcome(reward: Reward, value: float | None, terms: dict[str, float]) -> bytes:
    """An outcome without the judge's whole reply, which the record has."""
    without = tuple([replace(term, settled=replace(term.settled, reply=None)) for term in reward.terms])
    brief = replace(reward, settled=replace(reward.settled, reply=None), terms=without)
    return encode(Outcome(brief, value, terms))


def packed_error(error: Exception) -> bytes:
    """The outcome of all siblings where judging them has raised."""
    ours = isinstance(error, RefereeError)
    text = str(error) if ours else f"judging a group failed ({type(error).__name__}: {error})"
    return encode(Stopped(Fault(type(error).__name__ if ours else "", text, getattr(error, "reason", ""))))


def unpacked_outcome(data: bytes) -> Outcome:
    """The outcome; raises the error that stopped the judging."""
    outcome = _outcomes.decode(data)
    if isinstance(outcome, Stopped):
        raise outcome.fault.error()
    return outcome


def recorded(reward: Reward, value: float | None, policy: str) -> Reward:
    """A reward as the ledger has it, with what verl is given."""
    return replace(reward, value=value, filled=policy) if reward.value is None and value is not None else reward
