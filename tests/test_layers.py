"""Imports point one way, pure packages stay pure, modules stay short, one module reads the clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "referee"
MODULES = sorted(ROOT.rglob("*.py"))

# Low to high. A module may import from a lower rank or from its own package; siblings of one rank do not meet.
RANKS: list[set[str]] = [
    {"errors", "clock", "html", "version"},
    {"samples"},
    {"records", "plugins", "progress", "stats"},
    {"config", "rollouts", "soundness"},
    {"judging", "shaping", "limits", "wire", "probes", "signals"},
    {"cache", "ledger", "local"},
    {"engine"},
    {"batch"},
    {"scoring"},
    {"runtime"},
    {"audit"},
    {"referee", "ticket"},
    {"trainers", "server", "sim", "report"},
    {"testing", "calibration", "plan", "tables"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
SAME_RANK_ALLOWED = {("referee", "ticket")}

PURE = ("judging", "shaping", "limits", "wire", "probes", "signals", "stats")
IMPURE_IMPORTS = {"asyncio", "socket", "threading", "time", "random", "os", "sqlite3", "aiohttp", "subprocess", "io"}
IMPURE_IMPORTS |= {"importlib.metadata"}  # reads what is installed; `plugins` does that, while things are built
HTTP_HOMES = {"aiohttp": set(), "httpx": set(), "httptools": {"engine/connection.py", "sim/http.py"}}
CLOCK_CALLS = {
    ("time", "time"),
    ("time", "monotonic"),
    ("time", "sleep"),
    ("time", "perf_counter"),
    ("asyncio", "sleep"),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def top(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative import"
            found += [node.module or ""]
            if node.module == "referee":
                found += [f"referee.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_left(path: Path) -> None:
    """A module imports only what stands lower than itself."""
    own = top(path)
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no place in the order: add it to RANKS"
    for target in imports(path):
        parts = target.split(".")
        if parts[0] != "referee" or len(parts) < 2 or parts[1] not in RANK or parts[1] == own:
            continue
        other = parts[1]
        allowed = RANK[other] < RANK[own] or (own, other) in SAME_RANK_ALLOWED
        assert allowed, f"{name_of(path)} imports referee.{other}, which does not stand lower"


@pytest.mark.parametrize("path", [p for p in MODULES if top(p) in PURE], ids=name_of)
def test_pure_packages_do_no_io(path: Path) -> None:
    """Pure packages import nothing that waits, reads a clock, a file, a socket or chance."""
    targets = imports(path)
    bad = {*targets, *(target.split(".")[0] for target in targets)} & IMPURE_IMPORTS
    assert not bad, f"{name_of(path)} is pure but imports {sorted(bad)}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open", f"{name_of(path)} opens a file"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_are_short(path: Path) -> None:
    """No module passes 400 lines."""
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_say_what_lives_there(path: Path) -> None:
    """Every module opens with a docstring, unless it is empty."""
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree)


@pytest.mark.parametrize("path", [p for p in MODULES if name_of(p) != "clock.py"], ids=name_of)
def test_only_clock_reads_time(path: Path) -> None:
    """Time is read and slept in one place, so that tests can make it virtual."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in CLOCK_CALLS, f"{name_of(path)}: use referee.clock"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_http_client_has_one_home(path: Path) -> None:
    """What speaks HTTP is imported in the transports and nowhere else; pickle nowhere."""
    names = {target.split(".")[0] for target in imports(path)}
    assert "pickle" not in names
    for library, homes in HTTP_HOMES.items():
        assert library not in names or name_of(path) in homes
