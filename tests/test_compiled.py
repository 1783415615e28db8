"""What the compiler would get wrong in silence, and what would hide it: read in the sources, without a compiler."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from referee.version import compiled

ROOT = Path(__file__).parent.parent
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"][
    "mypyc"
]
EXCLUDED = {path for pattern in HOOK["exclude"] for path in ROOT.glob(pattern)}
COMPILED = sorted({path for pattern in HOOK["include"] for path in ROOT.glob(pattern)} - EXCLUDED)
ALL = sorted((ROOT / "src").rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".")


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def test_every_name_in_the_list_is_a_module() -> None:
    """A module that was renamed would silently not be compiled, or be compiled though it must not."""
    for pattern in [*HOOK["include"], *HOOK["exclude"]]:
        assert list(ROOT.glob(pattern)), f"pyproject.toml: {pattern} matches nothing"
    assert len(COMPILED) > 40


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_no_record_is_compiled(path: Path) -> None:
    """The compiler drops what stands behind a class's bases: `frozen=True` and `gc=False` of a msgspec.Struct."""
    found = [node.name for node in classes(path) if node.keywords or "Struct" in bases(node)]
    assert not found, f"{', '.join(found)}: put it into a module that is not compiled"


def test_nothing_extends_a_compiled_class() -> None:
    """That would be a TypeError when the first object is made."""
    ours = {node.name for path in COMPILED for node in classes(path)}
    found = [
        f"{name_of(path)}.{node.name}"
        for path in set(ALL) - set(COMPILED)
        for node in classes(path)
        if ours & {*bases(node)}
    ]
    assert not found, f"{', '.join(found)}: extends a class of a compiled module"


def test_nothing_compiled_lies_beside_the_sources() -> None:
    """It would be imported instead of them, however they change."""
    found = [path.name for path in (ROOT / "src").rglob("*.so")]
    assert not found, f"{len(found)} compiled modules in src ({found[0]}, ...): make clean removes them"


def test_a_build_knows_what_it_is() -> None:
    """`referee doctor` says so."""
    import referee.scorer

    assert compiled() is not str(referee.scorer.__file__).endswith(".py")
