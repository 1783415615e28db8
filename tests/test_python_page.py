"""docs/python.md and docs/troubleshooting.md say what the code says: names, fields, signatures, reasons, messages."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import referee
from referee import Reason, Referee, Sample, Ticket, errors, records
from referee.errors import InputError

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / "docs" / "python.md"
TROUBLE = ROOT / "docs" / "troubleshooting.md"
HOLE = "\0"
"""Stands where a message has something filled in."""


def section(page: Path, heading: str) -> str:
    """The text below a heading of the second level, up to the next."""
    parts = re.split(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def first_cells(text: str) -> list[str]:
    """What stands in code in the first cells of a table's rows."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [
        code.replace("\\|", "|") for row in rows for code in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[1])
    ]


def fields_of(name: str) -> list[str]:
    """The fields of a record as its source has them."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(getattr(records, name))))
    node = next(item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == name)
    return [ast.unparse(item) for item in node.body if isinstance(item, ast.AnnAssign)]


def calls_of(kind: type[Any]) -> set[str]:
    """Public methods with their parameters, as one would call them."""
    found = set()
    for name, member in vars(kind).items():
        if name.startswith("_") or not callable(getattr(kind, name)):
            continue
        signature = inspect.signature(getattr(kind, name))
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
        shown = str(signature.replace(parameters=bare, return_annotation=signature.empty))
        found.add(f"{kind.__name__}.{name}{shown}" if isinstance(member, classmethod) else f"{name}{shown}")
    return found


@pytest.mark.parametrize("name", ["Sample", "Message", "Reward", "Verdict", "Unscored", "Settled"])
def test_the_page_has_every_field(name: str) -> None:
    """With its type and default, in the order of the source."""
    assert first_cells(section(PYTHON, f"`{name}`")) == fields_of(name)


@pytest.mark.parametrize(("kind", "ours"), [(Referee, set()), (Ticket, {"deliver(rewards, error, done)"})])
def test_the_page_has_every_call(kind: type[Any], ours: set[str]) -> None:
    """With its parameters; but not what only the engine calls."""
    cells = [cell for cell in first_cells(section(PYTHON, f"`{kind.__name__}`")) if cell.endswith(")")]
    assert {cell for cell in cells if not cell.startswith("len(")} == calls_of(kind) - ours


def test_the_page_has_every_exception() -> None:
    """All of them, what each is a kind of, and what it carries."""
    classes = [item for item in vars(errors).values() if inspect.isclass(item) and item.__module__ == errors.__name__]
    text = section(PYTHON, "Exceptions")
    assert first_cells(text) == [item.__name__ for item in classes]
    assert all(getattr(referee, item.__name__) is item for item in classes)
    for item in classes:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{item.__name__}`"))
        carried = {name for base in item.__mro__ for name in inspect.get_annotations(base)}
        assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == carried
        assert all(
            f"`{base.__name__}`" in row for base in item.__bases__ if base not in (Exception, errors.RefereeError)
        )


def test_the_page_has_every_public_name() -> None:
    """Whatever `referee` exports is spoken of."""
    text = PYTHON.read_text(encoding="utf-8")
    assert [name for name in referee.__all__ if name != "__version__" and f"`{name}" not in text] == []


def test_every_reason_has_a_row() -> None:
    """What it means and what to do, in the order of the source."""
    assert first_cells(section(TROUBLE, "Reasons"))[: len(Reason)] == [reason.value for reason in Reason]


def templates() -> Iterator[str]:
    """Every text in the source, with a hole where something is filled in."""
    for path in sorted((ROOT / "src" / "referee").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%(?:\.\d+)?[a-z]", HOLE, node.value)


@cache
def all_templates() -> tuple[str, ...]:
    """The same, collected once."""
    return tuple(templates())


def quotes() -> list[str]:
    """Messages on the page: what stands in typographic quotes."""
    return re.findall(r"“([^”]+)”", TROUBLE.read_text(encoding="utf-8"))


def test_quoted_messages_are_real() -> None:
    """Each is in the source as it stands, with … for what is filled in or left out."""
    assert len(quotes()) > 20
    unknown = []
    for quote in quotes():
        parts = [re.escape(part.strip()) for part in quote.split("…") if part.strip()]
        pattern = re.compile(".*".join(parts), re.S)
        if not any(pattern.search(template) for template in all_templates()):
            unknown.append(quote)
    assert unknown == []


@pytest.mark.parametrize("given", [Sample(prompt="p", response="r"), {"prompt": "p"}, "text", 5])
def test_one_sample_is_no_list(given: Any) -> None:
    """Whoever forgets the brackets is told so, from each way in."""
    judge = Referee.from_config({"endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}, "cache": {"path": ""}})
    with judge:
        for call in (judge.submit, judge.score, lambda samples: asyncio.run(judge.ascore(samples))):
            with pytest.raises(InputError, match=r"write \[sample\], with brackets") as caught:
                call(given)
            assert caught.value.field == "samples"


def test_a_dict_is_no_sample() -> None:
    """The error says how to make one of it."""
    judge = Referee.from_config({"endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}, "cache": {"path": ""}})
    row: Any = {"prompt": "p", "response": "r"}
    with judge, pytest.raises(InputError, match=r"sample 0: .* got dict\. .*Sample\(\*\*row\)"):
        judge.submit([row])
    assert Sample(**row).response == "r"
