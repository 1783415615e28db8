"""A group as its judge is shown it: what the samples have in common once, equal responses once, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging.digest import digest
from referee.judging.judge import SampleJudge
from referee.judging.kind import Deliberation, Form, Judge
from referee.judging.prompt_builder import Group
from referee.judging.transcript import continued
from referee.records import Message, Reason, Sample, Text, Unscored, Verdict


class Siblings(Struct, frozen=True):
    """What a judge may ask of a group, and what is known without asking."""

    sample: Sample | None
    """One of those shown; its prompt is what all of them have in common. None: there is nothing to show."""
    texts: tuple[str, ...]
    """The responses, each once, in the order of `shuffled`."""
    places: dict[str, list[int]]
    """Which samples each text stands for."""
    settled: dict[int, Verdict | Unscored]
    """Samples that are not shown, by place."""

    @property
    def gated(self) -> int:
        """How many responses a gate has given the lowest score: they count as worse than all that are shown."""
        return sum(isinstance(end, Verdict) for end in self.settled.values())

    @property
    def lone(self) -> int | None:
        """The place of a response that there is nothing to compare with."""
        shown = [place for places in self.places.values() for place in places]
        return shown[0] if len(shown) == 1 and not self.gated else None

    def ends(self, given: Mapping[str, Verdict | Unscored]) -> list[Verdict | Unscored]:
        """One for each sample, in their order, of one for each text."""
        found = dict(self.settled)
        for text, places in self.places.items():
            found |= dict.fromkeys(places, given[text])
        return [found[place] for place in sorted(found)]


def siblings_of(judge: SampleJudge, samples: Sequence[Sample], form: Form, most: int | None) -> Siblings:
    """The samples of a group, ready to be shown; of each response at most `most` tokens."""
    settled: dict[int, Verdict | Unscored] = {}
    shown: dict[int, str] = {}
    for place, sample in enumerate(samples):
        known = judge.unasked(sample)
        seen = judge.seen(sample, judge.group(sample, form), most) if known is None else known
        if isinstance(seen, str):
            shown[place] = seen
        else:
            settled[place] = seen
    if not shown:
        return Siblings(None, (), {}, settled)
    there = [samples[place] for place in shown]
    prompt, texts = _apart(judge, there, list(shown.values()), most)
    first, *others = _differing(there)
    first = replace(first, prompt=prompt)
    common = judge.group(first, form)
    for other in others:
        names = _differences(common, judge.group(replace(other, prompt=prompt), form))
        if names:
            detail = f"the samples of this group differ in {' and '.join(names)}, shown once for all of them"
            return Siblings(None, (), {}, settled | dict.fromkeys(shown, Unscored(reason=Reason.CONFIG, detail=detail)))
    places: dict[str, list[int]] = {}
    for place, text in zip(shown, texts, strict=True):
        places.setdefault(text, []).append(place)
    return Siblings(first, tuple(shuffled(common.prompt, places)), places, settled)


def shuffled(prompt: str, texts: Iterable[str]) -> list[str]:
    """In an order that depends on the texts alone: an equal group has an equal order, and so an equal request, in every
    order of arrival, form of reply and run. No policy learns to write a text whose digest is small."""
    return sorted(texts, key=lambda text: digest(f"{prompt}\0{text}"))


def _apart(
    judge: SampleJudge, samples: Sequence[Sample], texts: Sequence[str], most: int | None
) -> tuple[Text, Sequence[str]]:
    """The prompt that samples have in common, and their texts, each with what else its own prompt holds. In the full
    view also what responses have in common, except the last message of each, is part of the prompt."""
    prompts = [sample.prompt for sample in samples]
    same = all(prompt == prompts[0] for prompt in prompts)
    full = judge.full and len(samples) > 1
    if same and (not full or any(isinstance(sample.response, str) for sample in samples)):
        return prompts[0], texts
    before = [_messages(prompt, "user") for prompt in prompts]
    if not full:
        common = _common(before, 0)
        return before[0][:common], [
            continued(own[common:], text, most) if own[common:] else text
            for own, text in zip(before, texts, strict=True)
        ]
    whole = [own + _messages(sample.response, "assistant") for own, sample in zip(before, samples, strict=True)]
    common = _common(whole, 1)
    if same and common <= len(before[0]):
        return prompts[0], texts
    return whole[0][:common], [judge.view(messages[common:], most) for messages in whole]


def _common(conversations: Sequence[tuple[Message, ...]], kept: int) -> int:
    """How many messages they all begin with, `kept` of the shortest left out."""
    most = min(map(len, conversations)) - kept
    first = conversations[0]
    return next((at for at in range(most) if any(other[at] != first[at] for other in conversations)), most)


def _messages(text: Text, role: str) -> tuple[Message, ...]:
    return (Message(role, text),) if isinstance(text, str) else text


def _differing(samples: Sequence[Sample]) -> list[Sample]:
    """One sample of each set of texts that a template could show beside prompt and response."""
    found: dict[object, Sample] = {}
    for sample in samples:
        found.setdefault((sample.tools, sample.reference, tuple(sorted(sample.columns.items()))), sample)
    return list(found.values())


def _differences(one: Group, other: Group) -> list[str]:
    names = [name for (name, text), (_, more) in zip(one.facets, other.facets, strict=True) if text != more]
    return ["tools" if name == "prompt" else name for name in names]  # the messages are the same


class Alone:
    """What becomes of a response without siblings: `judge.alone`."""

    def __init__(self, config: JudgeConfig, used: Mapping[str, Judge]) -> None:
        self._judge = used.get(config.alone)
        graded = config.kind == "listwise" and not config.ranks
        self._low, self._high = (config.low, config.high) if graded else (0, 1)
        self._reply = {judge.name: judge.reply for judge in config.uses}.get(config.alone, "auto")
        if self._judge is not None and self._judge.unit == "group":
            raise ConfigError(
                f'judge.alone: "{config.alone}" compares responses, too. Name a judge that judges each by itself.',
                setting="judge.alone",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the other judge shows."""
        return tuple(getattr(self._judge, "columns", ()))

    def deliberate(self, sample: Sample, form: Form) -> Deliberation:
        """The other judge's verdict, its score on the scale of this one; none without one."""
        if self._judge is None:
            detail = "it has no siblings to be compared with; judge.alone may name a judge for such samples"
            return (Unscored(reason=Reason.ALONE, detail=detail),)
        [end] = yield from self._judge.deliberate((sample,), form if self._reply == "auto" else self._reply)
        if isinstance(end, Verdict):
            end = replace(end, score=self._low + end.value * (self._high - self._low))
        return (end,)
