"""The judge that asks one question about one sample, or about several responses to its prompt: its kind's texts and
reader, template, gates, guard."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Literal

from referee.config import DECISION, JudgeConfig, asking_judges, pool_of
from referee.errors import ConfigError
from referee.judging.decision import decision
from referee.judging.digest import key_of
from referee.judging.gates import settle
from referee.judging.guard import FIELDS, bare, scrub, show, with_reasoning_tags
from referee.judging.images import attach, shown_in, too_many, unusable
from referee.judging.kind import Deliberation, Form, Kind, Reader
from referee.judging.prompt_builder import RESPONSES, Group, Wording, compose, gather, prepare, show_one, show_several
from referee.judging.read import visible
from referee.judging.template import COLUMNS, columns_in, parse, uses
from referee.judging.transcript import prompt_text, reasoning_text, response_text
from referee.records import Ask, Message, Reason, Reply, Sample, Sampling, Text, Tool, Unscored, Verdict
from referee.rollouts import last_user, media_of

GROUPS = 128
"""Prompts whose part of the request is remembered: the rollouts of one come together, or a few at a time in turn."""
LONGEST_REMEMBERED = 50_000
"""Characters of prompt and reference. What is remembered stays in memory as long as the judge does. Of longer ones the
latest is: a judge of groups asks many questions about it."""
FORMS: tuple[Form, ...] = ("schema", "text")
LabelReader = Callable[[Sequence[str], str, Ask, Reply], Verdict | Unscored]
"""A Reader of replies about several responses; its first argument are the labels they were shown under."""


def seen_by(configs: Sequence[JudgeConfig]) -> Callable[[Text], str]:
    """What judges can tell responses of one prompt apart by: equal wherever their requests are."""
    asking = list(asking_judges(configs))
    if all(map(_sees_reasoning, asking)):
        return functools.partial(reasoning_text, most=None)
    images = any(config.parts == "show" for config in asking)
    return lambda response: response_text(response, False, None, images).answer


def _sees_reasoning(config: JudgeConfig) -> bool:
    return config.kind == "monitor" or config.view == "reasoning"


class SampleJudge:
    """A judge that asks one question about one sample: template, gates and guard of its configuration."""

    unit: Literal["sample"] = "sample"

    def __init__(self, config: JudgeConfig, kind: Kind, secret: bytes, template: str | None) -> None:
        """`secret` and `template` as in registry.make_judge."""
        for setting, text in (
            ("judge.criteria", config.criteria),
            ("judge.system_prompt", config.system_prompt),
            ("judge.prompt_file", template or ""),
        ):
            if not text.isascii() and text != text.encode(errors="replace").decode():
                raise ConfigError(f"{setting}: holds half a character (a lone surrogate).", setting=setting)
        several = RESPONSES in kind.needs
        fields = [RESPONSES if several and name == "response" else name for name in FIELDS]
        parsed = parse(
            kind.template if template is None else template, frozenset(kind.values) | {*fields, *kind.needs}, kind.needs
        )
        self.shows = frozenset(name for name in ("criteria", "system_prompt") if uses(parsed, name))
        """Which of these settings are in its prompt."""
        self._again = config.ask_again
        self._read = self.read  # one bound method for all asks: thousands wait at once, and the GC walks each object
        self._pool = pool_of(config)
        self._falls_back = config.reply == "auto" and kind.sampling["schema"] != kind.sampling["text"]
        self._key = key_of(secret)
        self._kind = kind
        self._gates = config.gates
        self.decides = config.api == DECISION
        """Whether its endpoints answer with probabilities instead of text."""
        self._trace = kind.trace or config.view == "reasoning"
        self.full = config.view == "full"
        """Whether it sees everything that the policy wrote and did."""
        self._config = config
        self._images = config.parts == "show"
        self._several = several
        self._most = config.max_view_tokens
        self._ask_above = config.ask_above
        self._frames = {form: prepare(kind, parsed, form, config.fences and not kind.bare) for form in FORMS}
        self._compares = uses(parsed, "reference")
        self.columns = tuple(columns_in(parsed))
        """Columns of the rollouts that the template shows."""
        unused = [name for name in config.trusted_columns if name not in self.columns]
        if unused:
            raise ConfigError(
                f"judge.trusted_columns: the template has no {{{{{COLUMNS}{unused[0]}}}}}.",
                setting="judge.trusted_columns",
            )
        self._trusted = frozenset(COLUMNS + name for name in config.trusted_columns)
        self._remembered = functools.lru_cache(maxsize=GROUPS)(self._gather)
        self._latest = functools.lru_cache(maxsize=len(FORMS))(self._gather)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """One question, one answer, one verdict."""
        planned = self.plan(samples[0], form)
        if isinstance(planned, Ask):
            answers = yield (planned,)
            return answers
        return (planned,)

    def plan(self, sample: Sample, form: Form, wording: Wording | None = None) -> Ask | Verdict | Unscored:
        """The question about a sample, or what a gate made of it without one. `wording`: which question, of several.
        The text form is added by its asker."""
        settled = self.unasked(sample)
        if settled is not None:
            return settled
        group = self.group(sample, form)
        shown = self.seen(sample, group, self._most)
        if not isinstance(shown, str):
            return shown
        if self.decides:
            source = self._kind if wording is None else wording
            texts = {"prompt": bare(group.prompt), "response": bare(shown)}
            return decision(self._kind.name, texts, source.queries, source.decided, self._again, self._pool)
        ask = self._ask(group, shown, sample, form, wording)
        return self._with_images(ask, (sample.prompt, sample.response)) if self._images else ask

    def unasked(self, sample: Sample) -> Verdict | Unscored | None:
        """What is known of a sample before its texts are looked at; None: it may be asked about."""
        if not self._key:
            raise ConfigError("this judge was made without a secret, so its verdict tags could be forged.")
        if self._compares and not (sample.reference or "").strip():
            detail = "the sample has no `reference`, and this judge compares with one"
            return Unscored(reason=Reason.CONFIG, detail=detail)
        for name in self.columns:
            if name not in sample.columns:
                detail = f"the sample has no column `{name}`, and the judge's template shows it"
                return Unscored(reason=Reason.CONFIG, detail=detail)
        if self._images:
            refused = unusable((sample.prompt, sample.response), self._config)
            if refused is not None:
                return refused
        if self._ask_above is not None and not sample.rule_score > self._ask_above:
            words = f"not asked: the rule score ({sample.rule_score:g}) is not above {self._ask_above:g}"
            return Verdict(score=0.0, value=0.0, how="gate", reason=words)
        return None

    def seen(self, sample: Sample, group: Group, most: int | None) -> str | Verdict | Unscored:
        """What the judge sees of a response, of at most `most` tokens; or what a gate made of it."""
        if self._images and self._several:
            if any(media_of(sample.response)):
                detail = "the response holds an image, and a judge of groups is shown only those of the prompt"
                return Unscored(reason=Reason.CONFIG, detail=detail)
            refused = too_many(shown_in(group.prompt, (sample.prompt,)), self._config)
            if refused is not None:
                return refused
        if self._trace:
            trace = reasoning_text(sample.response, most)
            if not trace or trace.isspace():
                return Unscored(reason=Reason.EMPTY, detail="the response holds no reasoning for the judge to read")
            return trace
        shown, answer = response_text(sample.response, self.full, most, self._images)
        whole = type(sample.prompt) is str and not sample.tools and self._most is None
        prompt = group.prompt if whole else show(last_user(sample.prompt))
        settled = settle(sample, answer, prompt, self._gates, self._kind.lowest)
        if settled is not None:
            return settled
        return with_reasoning_tags(shown) if self._kind.bare else shown

    def view(self, response: Text, most: int | None) -> str:
        """The same without a look at the gates."""
        return reasoning_text(response, most) if self._trace else response_text(response, self.full, most).text

    def group(self, sample: Sample, form: Form) -> Group:
        """What the rollouts of the sample's prompt have in common; remembered."""
        prompt, reference = sample.prompt, sample.reference if self._compares else None
        columns = tuple([sample.columns[name] for name in self.columns]) if self.columns else ()
        size = len(prompt) if isinstance(prompt, str) else sum([_size(message) for message in prompt])
        size += len(reference or "") + sum(map(len, columns))
        find = self._remembered if size <= LONGEST_REMEMBERED else self._latest
        return find(prompt, sample.tools, columns, reference, form)

    def _gather(
        self, prompt: Text, tools: tuple[Tool, ...], columns: tuple[str, ...], reference: str | None, form: Form
    ) -> Group:
        texts = {"prompt": prompt_text(prompt, tools, self.full, self._most, self._images)}
        if reference is not None:
            texts["reference"] = show(reference)
        for name, value in zip(self.columns, columns, strict=True):
            name = COLUMNS + name
            texts[name] = scrub(value) if name in self._trusted else show(value)
        return gather(self._frames[form], texts, self._key, self._trusted)

    def _ask(self, group: Group, response: str, sample: Sample, form: Form, wording: Wording | None) -> Ask:
        shown = show_one(group, response, self._key)
        if wording is not None:
            read = functools.partial(_read, wording.read)
            return compose(group, shown, wording.sampling, read, self._again, self._pool, None, wording.values)
        in_text = functools.partial(self.plan, sample, "text") if form == "schema" and self._falls_back else None
        return compose(group, shown, group.frame.sampling, self._read, self._again, self._pool, in_text)

    def ask_about(
        self,
        sample: Sample,
        texts: Sequence[str],
        form: Form,
        sampling: Callable[[Form], Sampling],
        read: LabelReader,
    ) -> Ask:
        """One question about several responses to the sample's prompt, with its text form."""
        group = self.group(sample, form)
        shown = show_several(group, texts, self._key)
        falls_back = form == "schema" and self._falls_back
        in_text = functools.partial(self.ask_about, sample, texts, "text", sampling, read) if falls_back else None
        reader = functools.partial(_read, functools.partial(read, shown.labels))
        ask = compose(group, shown, sampling(form), reader, self._again, self._pool, in_text)
        images = shown_in(group.prompt, (sample.prompt,)) if self._images else {}
        return attach(ask, images) if images else ask

    def _with_images(self, ask: Ask, texts: tuple[Text, ...]) -> Ask | Unscored:
        images = shown_in(ask.messages[-1].content, texts)
        return (too_many(images, self._config) or attach(ask, images)) if images else ask

    def read(self, request: Ask, reply: Reply) -> Verdict | Unscored:
        """The reply's verdict, read strictly. Never raises."""
        return _read(self._kind.read, request, reply)


def _size(message: Message) -> int:
    return len(message.content) + sum([len(media.source) for media in message.media])


def _read(reader: Reader, request: Ask, reply: Reply) -> Verdict | Unscored:
    said = visible(reply)
    return said if isinstance(said, Unscored) else reader(said, request, reply)
