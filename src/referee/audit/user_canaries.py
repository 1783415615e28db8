"""The user's own canaries: a JSONL file, read before anything is judged."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
from msgspec import Struct

from referee.errors import ConfigError

USER_PREFIX = "own "
"""Begins the name of each in the record."""


class UserCanary(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the file."""

    response: str
    wrong: bool
    """It deserves the lowest score; otherwise a high one."""
    prompt: str = ""
    """Empty: it is put under the run's own prompts."""
    reference: str | None = None
    name: str = ""


def read_user_canaries(path: str) -> list[UserCanary]:
    """The canaries of a file, each named "own" and its name or line. Mixed, always in the same way: rounds take turns
    with them, and where the hard ones stand together a judge would seem to change when their turn comes."""
    if not path:
        return []
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"audit.canaries: cannot read {path!r} ({error.strerror}).", setting="audit.canaries"
        ) from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=UserCanary)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"audit.canaries: {path}, line {number}: {error}. A line looks like this: "
                '{"response": "Thought process:", "wrong": true}, with `prompt` and `reference` if it belongs to one.',
                setting="audit.canaries",
            ) from None
        found.append(msgspec.structs.replace(one, name=f"{USER_PREFIX}{one.name or number}"))
    random.Random(0).shuffle(found)
    return found
