"""Judges by name: the shipped kinds, and those of other packages (entry points in the group `referee.judges`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee import plugins
from referee.config import JudgeConfig
from referee.errors import ConfigError, RefereeError
from referee.judging.abstain import AbstainingJudge
from referee.judging.cascade import CascadeJudge
from referee.judging.checks import CheckFunction
from referee.judging.digest import digest
from referee.judging.integer import integer
from referee.judging.judge import SampleJudge
from referee.judging.jury import JuryJudge
from referee.judging.kind import Form, Judge, JudgeFactory, Kind, Question, Unit
from referee.judging.listwise import ListwiseJudge
from referee.judging.lookalike import KEYS, LABELS
from referee.judging.monitor import monitor
from referee.judging.pairwise import PairwiseJudge, unit_of_pairs
from referee.judging.reference import reference
from referee.judging.repeat import repeated
from referee.judging.reward_model import RewardModelJudge
from referee.judging.rubric import RubricJudge
from referee.judging.score import score
from referee.judging.yes_no import yes_no
from referee.records import Ask, Reason, Sample, Unscored, Verdict

SETTING = "judge.kind"
NO_FUNCTIONS: Mapping[str, CheckFunction] = {}
NO_JUDGES: Mapping[str, Judge] = {}
NO_ANSWER = Unscored(reason=Reason.NO_VERDICT, detail="it was only planned")
KINDS: dict[str, Callable[[JudgeConfig], Kind]] = {
    "score": score,
    "yes_no": yes_no,
    "reference": reference,
    "integer": integer,
    "monitor": monitor,
}
"""The shipped kinds. A judge of another package may ask one of them, or a changed one."""


class Materials(Struct, frozen=True):
    """What judges are made of, as in `make_judge`."""

    config: JudgeConfig
    secret: bytes
    template: str | None
    functions: Mapping[str, CheckFunction]
    used: Mapping[str, Judge]


class Composed(Struct, frozen=True):
    """A shipped kind of several questions, or of whole groups."""

    make: Callable[[Materials], Judge]
    unit: Callable[[JudgeConfig], Unit] = lambda _: "sample"


def _unit_of_members(config: JudgeConfig) -> Unit:
    return "group" if needs_groups(config.uses) else "sample"


COMPOSED: dict[str, Composed] = {
    "reward_model": Composed(lambda of: RewardModelJudge(of.config, of.template)),
    "rubric": Composed(lambda of: RubricJudge(of.config, of.secret, of.template, of.functions)),
    "listwise": Composed(lambda of: ListwiseJudge(of.config, of.secret, of.template, of.used), lambda _: "group"),
    "pairwise": Composed(lambda of: PairwiseJudge(of.config, of.secret, of.template, of.used), unit_of_pairs),
    "jury": Composed(lambda of: JuryJudge(of.config, of.used), _unit_of_members),
    "cascade": Composed(lambda of: CascadeJudge(of.config, of.used), _unit_of_members),
}


def make_judge(
    config: JudgeConfig,
    secret: bytes,
    template: str | None = None,
    functions: Mapping[str, CheckFunction] = NO_FUNCTIONS,
    used: Mapping[str, Judge] = NO_JUDGES,
) -> Judge:
    """The judge this configuration describes.

    `secret` keys the nonces: 16 or more random bytes that the policy never sees. With an empty one the configuration is
    checked, but the judge refuses to plan: its nonces could be predicted. `template` is the text of
    `judge.prompt_file`; the caller reads files. `functions`: what rules of a rubric may call. `used`: the
    judges that it names in its settings.
    """
    judge = repeated(_make(Materials(config, secret, template, functions, used)), config)
    return judge if config.abstain_above is None else AbstainingJudge(judge, config.abstain_above)


def _make(given: Materials) -> Judge:
    """The judge of its kind, asked once."""
    config, secret, template = given.config, given.secret, given.template
    if config.kind not in KINDS and config.kind not in COMPOSED:
        factory, package = _plugin(config.kind)
        return make_with(factory, config, secret, template, package)
    if config.options:
        raise ConfigError(
            f'judge.options: kind = "{config.kind}" has no options of its own; they are for judges of other packages.',
            setting="judge.options",
        )
    if config.kind in COMPOSED:
        composed = COMPOSED[config.kind].make(given)
        _refuse_unused(config, template, [composed])
        return composed
    judge = SampleJudge(config, KINDS[config.kind](config), secret, template)
    _refuse_unused(config, template, [judge])
    return judge


def unit_of(config: JudgeConfig) -> Unit:
    """Whether the judge is given one sample or a whole group. Known without making it."""
    if config.kind in COMPOSED:
        return COMPOSED[config.kind].unit(config)
    return "sample" if config.kind in KINDS else _plugin(config.kind)[0].unit


def needs_groups(judges: Sequence[JudgeConfig]) -> bool:
    """True if one of these judges is given all samples of a group at once. Known without making it."""
    return any(unit_of(judge) == "group" for judge in judges)


def refuse_groups(judges: Sequence[JudgeConfig], where: str, instead: str = "") -> None:
    """Refuse judges of whole groups where samples come one at a time, before anything is judged. `instead`: where they
    come in groups."""
    for judge in judges:
        if needs_groups((judge,)):
            raise ConfigError(
                f'{where} shows one answer at a time, and judge "{judge.name}" (kind = "{judge.kind}") compares the '
                "answers to one prompt: a group of one would be judged. Choose a kind that judges each answer by "
                f"itself{instead and f', or use {instead}'}.",
                setting=SETTING,
            )


def make_with(
    factory: JudgeFactory, config: JudgeConfig, secret: bytes, template: str | None = None, package: str = ""
) -> Judge:
    """The judge that a factory of another package makes. `package`: for errors."""
    asked: list[SampleJudge] = []
    try:
        judge = factory.make(config, _questions(config, secret, template, asked))
    except RefereeError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{SETTING}: {config.kind!r}{_of(package)} could not make a judge of these settings: "
            f"{type(error).__name__}: {error}",
            setting=SETTING,
        ) from error
    if getattr(judge, "unit", None) != factory.unit or not callable(getattr(judge, "deliberate", None)):
        raise ConfigError(
            f"{SETTING}: {config.kind!r}{_of(package)} made {judge!r:.100}, which is no judge of a {factory.unit}.",
            setting=SETTING,
        )
    _refuse_unused(config, template, asked)
    return judge


def first_round(judge: Judge, samples: Sequence[Sample], form: Form) -> Sequence[Ask]:
    """What a judge asks first about its samples. Empty: it needs no answer."""
    return rounds_unanswered(judge, samples, form, 1)


def rounds_unanswered(judge: Judge, samples: Sequence[Sample], form: Form, most: int) -> Sequence[Ask]:
    """What a judge asks about its samples in at most `most` rounds, if no question is answered: a plan of what may be
    sent."""
    asked: list[Ask] = []
    try:
        with contextlib.closing(judge.deliberate(samples, form)) as deliberation:
            asks: Sequence[Ask] | None = next(deliberation, None)
            while asks is not None:
                asked += asks
                most -= 1
                if not most:
                    break
                asks = deliberation.send([NO_ANSWER] * len(asks))
    except StopIteration:
        pass
    except RefereeError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{SETTING}: the judge failed while it was planned: {type(error).__name__}: {error}", setting=SETTING
        ) from error
    return asked


def settles(judge: Judge, sample: Sample, form: Form) -> bool:
    """Whether a judge has no question about a sample, as after a gate, also where it is given siblings."""
    with contextlib.closing(judge.deliberate((sample,), form)) as deliberation:
        try:
            next(deliberation)
        except StopIteration as end:
            [verdict] = end.value
            return verdict.how == "gate" if isinstance(verdict, Verdict) else verdict.reason is not Reason.ALONE
    return False


def _questions(config: JudgeConfig, secret: bytes, template: str | None, asked: list[SampleJudge]) -> Question:
    """What makes questions; they are put into `asked`."""

    def question(kind: Kind) -> Judge:
        _check_schema(config, kind)
        if template is not None and asked:
            raise ConfigError(
                f"judge.prompt_file: {config.kind!r} asks several questions, which cannot share one template.",
                setting="judge.prompt_file",
            )
        # Under the judge's own name: it may ask a shipped kind's question and read the reply in its own way.
        named = replace(kind, name=f"{config.kind}:{kind.name}", facets=(*kind.facets, *_facets(config)))
        asked.append(SampleJudge(config, named, secret, template))
        return asked[-1]

    return question


def _refuse_unused(config: JudgeConfig, template: str | None, asked: Sequence[Judge]) -> None:
    """A setting that no question of the judge shows would be read past."""
    shown = frozenset[str]().union(*(getattr(question, "shows", ()) for question in asked))
    owner = f'kind = "{config.kind}"' if template is None else "judge.prompt_file"
    for name, text, advice in (
        (
            "system_prompt",
            config.system_prompt,
            ' It is for kind = "integer"; elsewhere put it into judge.prompt_file.',
        ),
        ("criteria", config.criteria, ""),
    ):
        if text.strip() and asked and name not in shown:
            raise ConfigError(
                f"judge.{name}: is set, but the template of {owner} has no {{{{{name}}}}} to put it in.{advice}",
                setting=f"judge.{name}",
            )


def _check_schema(config: JudgeConfig, kind: Kind) -> None:
    """The guard breaks what looks like a verdict in a candidate's text. What it does not know could be forged."""
    schema = kind.sampling["schema"].schema or {}
    for name, value in schema.get("properties", {}).items():
        if name != "reason" and not (name in KEYS and _is_guarded(value)):
            raise ConfigError(
                f"{SETTING}: {config.kind!r} asks for {name!r} in JSON, {value}, which the guard would not notice in a "
                f"candidate's text. Ask for {' or '.join(KEYS)}: a number, or an enum of {', '.join(LABELS)}.",
                setting=SETTING,
            )


def _is_guarded(value: Mapping[str, Any]) -> bool:
    if "enum" not in value:
        return value.get("type") in ("integer", "number")
    return all(word in LABELS or type(word) in (int, float) for word in value["enum"])


def _facets(config: JudgeConfig) -> tuple[tuple[str, str], ...]:
    """Options count, whatever they are for: which of them change how a reply is read is not known here."""
    if not config.options:
        return ()
    return (("options", digest(msgspec.json.encode(config.options, order="sorted").decode())),)


def _plugin(name: str) -> tuple[JudgeFactory, str]:
    found = plugins.load(plugins.JUDGES, name, SETTING, (*KINDS, *COMPOSED))
    if not isinstance(found.value, JudgeFactory):
        raise ConfigError(
            f"{SETTING}: the entry point {name!r} of the package {found.package} must name a "
            f"referee.judging.JudgeFactory, not {found.value!r:.100}.",
            setting=SETTING,
        )
    return found.value, found.package


def _of(package: str) -> str:
    return f" of the package {package}" if package else ""
