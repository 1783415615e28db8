"""What an alarm says. Data only."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Level = Literal["warning", "critical"]

ADVICE = {
    "canaries": "Strengthen the judge: a stricter prompt, a reference, or another model; try `referee attack`.",
    "shadow": "Look at the samples on which the two judges differ most; let people label some (`referee calibrate`).",
    "exploitation": "Read the samples: high scores that the shadow judge rejects. Change the judge or stop the run.",
    "probes": "Tell the judge to ignore what was added, or use a judge that does; try `referee attack`.",
    "length": "Set [shaping.length], or tell the judge that length by itself is worth nothing.",
    "style": "Tell the judge to ignore headings, lists and bold, or ask for one format in the prompt.",
    "phrase": "Read the samples. Tell the judge that this wording is worth nothing, or use another judge.",
    "overlap": "Read the samples: answers to different prompts are alike. Give the judge a reference.",
    "variety": "Read the samples: answers repeat themselves. Tell the judge to punish repetition.",
    "saturation": "The judge no longer tells right from wrong: give it a reference, or a stricter rubric.",
    "criteria": "Split criteria that ask for several things, and ask for what is right, not for what is mentioned.",
    "judge_changed": "Pin the model and its provider; if it was on purpose, say so with announce().",
    "fixed": "The judge itself has drifted: pin its model and provider; scores before and after differ.",
    "unscored": "See the reasons in `referee report`; unscored answers are not random ones.",
    "latency": "See `referee report`: the judge's server is slower than at the start.",
    "verdicts": "Scores jumped from one step to the next: look for a change of judge, prompt or data.",
}
"""What to try, by signal."""


class Alarm(Struct, frozen=True, kw_only=True):
    """A signal that became an alarm, or (`over`) is back to normal."""

    signal: str
    level: Level = "warning"
    step: int | None = None
    critical_step: int | None = None
    """Of a finished run, where it began as a warning: when it became critical; sentence and evidence are of then."""
    over: bool = False
    sentence: str = ""
    evidence: dict[str, float | str] = {}
    samples: tuple[dict[str, Any], ...] = ()
    """At most three: batch, index, id, value and, where texts are kept, text."""
    advice: str = ""
