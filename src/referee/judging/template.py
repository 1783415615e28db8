"""Prompt templates: shipped texts and the user's own, checked once, filled in one pass.

A template has a `[system]` part (the same for every sample, so that providers can cache it) and a `[user]` part that
holds the texts to judge; without these headings all of it is the user part. Placeholders are `{{name}}`:

    {{prompt}} {{response}} {{reference}}   the sample's texts, fenced; only in the user part
    {{responses}}                           of a group, each fenced and under its label, instead of {{response}}
    {{criteria}}                            judge.criteria, or the kind's default
    {{low}} {{high}} {{levels}}             the scale and what its levels mean; for kinds with a scale
    {{columns.topic}}                       a column of the rollout's own, fenced; only in the user part
    {{reply}}                               how to answer; put at the end if the template does not place it

What is filled in is never searched for placeholders again, so a candidate cannot bring its own.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from importlib import resources

from msgspec import Struct

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging.guard import FIELDS
from referee.judging.kind import Form

REPLY = "reply"
COLUMNS = "columns."
"""Beginning of the placeholders for a rollout's own columns."""
_SLOT = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_HEADING = re.compile(r"^\[(system|user)\][ \t]*$", re.MULTILINE)

Pieces = tuple[tuple[str, str], ...]
"""Literal text, and the name of the placeholder that follows it; the last name is empty."""


class Template(Struct, frozen=True):
    """A checked template."""

    system: str
    user: str


@functools.cache
def shipped(name: str) -> str:
    """A text of this package's prompts folder."""
    return resources.files("referee.judging").joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()


def shipped_replies(kind: str) -> dict[Form, str]:
    """How judges of a shipped kind are told to answer."""
    return {"schema": shipped(f"{kind}_reply_schema"), "text": shipped(f"{kind}_reply_text")}


def criteria_of(config: JudgeConfig, kind: str) -> str:
    """The judge's criteria, or the shipped ones of its kind."""
    return config.criteria.strip() or shipped(f"{kind}_criteria")


def parse(text: str, known: frozenset[str], needs: tuple[str, ...]) -> Template:
    """The template, or a ConfigError that names the placeholder or heading that is wrong."""
    parts = _HEADING.split(text.replace("\r\n", "\n").strip())
    headings = parts[1::2]
    if not headings:
        system, user = "", parts[0]
    elif headings in (["user"], ["system", "user"]) and not parts[0].strip():
        system, user = "".join(parts[2:-1:2]), parts[-1]
    else:
        raise _wrong("headings must be [system] then [user], once each, or [user] alone, with no text before them.")
    in_system, in_user = _names(system), _names(user)
    for name in in_system + in_user:
        if name not in known and name != REPLY and not (name.startswith(COLUMNS) and name != COLUMNS):
            near = difflib.get_close_matches(name, [*known, REPLY], n=1, cutoff=0.6)
            hint = f"Did you mean {{{{{near[0]}}}}}?" if near else f"Known here: {_listed([*known, REPLY])}."
            raise _wrong(f"unknown placeholder {{{{{name}}}}}. {hint}")
    for name in in_system:
        if name in (*FIELDS, *needs, REPLY) or name.startswith(COLUMNS):
            raise _wrong(
                f"placeholder {{{{{name}}}}} belongs in the [user] part: [system] is the same for all samples."
            )
    for name in needs:
        if name not in in_user:
            raise _wrong(f"placeholder {{{{{name}}}}} is missing: the judge would not see the {name}.")
    for name in dict.fromkeys((*FIELDS, *needs, REPLY)):
        if in_user.count(name) > 1:
            raise _wrong(f"placeholder {{{{{name}}}}} stands there {in_user.count(name)} times; once is enough.")
    if REPLY not in in_user:
        user = f"{user.rstrip()}\n\n{{{{{REPLY}}}}}"
    return Template(system.strip(), user.strip())


def columns_in(template: Template) -> list[str]:
    """The columns it shows, each once."""
    return list(dict.fromkeys(name[len(COLUMNS) :] for name in _names(template.user) if name.startswith(COLUMNS)))


def uses(template: Template, name: str) -> bool:
    """True if the placeholder stands in the template."""
    return name in _names(template.system) or name in _names(template.user)


def fill(text: str, values: Mapping[str, str], inner: Mapping[str, Pieces] | None = None) -> Pieces:
    """Put values in; placeholders that have none stay open. `inner` are texts already filled, put in as they are."""
    parts = _SLOT.split(text)
    pieces: list[tuple[str, str]] = []
    literal = ""
    for before, name in zip(parts[::2], [*parts[1::2], ""], strict=True):
        literal += before
        if inner and name in inner:
            for more, slot in inner[name]:
                literal += more
                if slot:
                    pieces.append((literal, slot))
                    literal = ""
        elif name in values:
            literal += values[name]
        elif name:
            pieces.append((literal, name))
            literal = ""
    pieces.append((literal, ""))
    return tuple(pieces)


def _names(text: str) -> list[str]:
    return [match[1] for match in _SLOT.finditer(text)]


def _listed(names: list[str]) -> str:
    return ", ".join(f"{{{{{name}}}}}" for name in sorted(names))


def _wrong(problem: str) -> ConfigError:
    return ConfigError(f"judge.prompt_file: {problem}", setting="judge.prompt_file")
