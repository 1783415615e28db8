"""Judges by name: the shipped kinds, and those of other packages (entry points in the group `referee.judges`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from referee import plugins
from referee.config import JudgeConfig
from referee.errors import ConfigError, RefereeError
from referee.judging.digest import digest
from referee.judging.integer import integer
from referee.judging.judge import SampleJudge
from referee.judging.kind import Form, Judge, JudgeFactory, Kind, Question
from referee.judging.lookalike import KEYS, LABELS
from referee.judging.monitor import monitor
from referee.judging.reference import reference
from referee.judging.score import score
from referee.judging.yes_no import yes_no
from referee.records import Ask, Sample

SETTING = "judge.kind"
KINDS: dict[str, Callable[[JudgeConfig], Kind]] = {
    "score": score,
    "yes_no": yes_no,
    "reference": reference,
    "integer": integer,
    "monitor": monitor,
}
"""The shipped kinds. A judge of another package may ask one of them, or a changed one."""


def make_judge(config: JudgeConfig, secret: bytes, template: str | None = None) -> Judge:
    """The judge this configuration describes.

    `secret` keys the nonces: 16 or more random bytes that the policy never sees. With an empty one the configuration is
    checked, but the judge refuses to plan: its nonces could be predicted. `template` is the text of
    `judge.prompt_file`; the caller reads files.
    """
    if config.kind not in KINDS:
        factory, package = _plugin(config.kind)
        return make_with(factory, config, secret, template, package)
    if config.options:
        raise ConfigError(
            f'judge.options: kind = "{config.kind}" has no options of its own; they are for judges of other packages.',
            setting="judge.options",
        )
    return SampleJudge(config, KINDS[config.kind](config), secret, template)


def needs_groups(config: JudgeConfig) -> bool:
    """Whether this judge is shown whole groups. Known without making it."""
    return config.kind not in KINDS and _plugin(config.kind)[0].unit == "group"


def make_with(
    factory: JudgeFactory, config: JudgeConfig, secret: bytes, template: str | None = None, package: str = ""
) -> Judge:
    """The judge that a factory of another package makes. `package`: for errors."""
    try:
        judge = factory.make(config, _questions(config, secret, template))
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
    return judge


def first_round(judge: Judge, samples: Sequence[Sample], form: Form) -> Sequence[Ask]:
    """What a judge asks first about its samples. Empty: it needs no answer."""
    try:
        with contextlib.closing(judge.deliberate(samples, form)) as deliberation:
            return next(deliberation, ())
    except RefereeError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{SETTING}: the judge failed before its first question: {type(error).__name__}: {error}", setting=SETTING
        ) from error


def _questions(config: JudgeConfig, secret: bytes, template: str | None) -> Question:
    asked: list[Kind] = []

    def question(kind: Kind) -> Judge:
        asked.append(kind)
        _check_schema(config, kind)
        if template is not None and len(asked) > 1:
            raise ConfigError(
                f"judge.prompt_file: {config.kind!r} asks several questions, which cannot share one template.",
                setting="judge.prompt_file",
            )
        # Under the judge's own name: it may ask a shipped kind's question and read the reply in its own way.
        named = replace(kind, name=f"{config.kind}:{kind.name}", facets=(*kind.facets, *_facets(config)))
        return SampleJudge(config, named, secret, template)

    return question


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
    found = plugins.load(plugins.JUDGES, name, SETTING, tuple(KINDS))
    if not isinstance(found.value, JudgeFactory):
        raise ConfigError(
            f"{SETTING}: the entry point {name!r} of the package {found.package} must name a "
            f"referee.judging.JudgeFactory, not {found.value!r:.100}.",
            setting=SETTING,
        )
    return found.value, found.package


def _of(package: str) -> str:
    return f" of the package {package}" if package else ""
