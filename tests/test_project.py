"""The project keeps its word: documents name what exists, examples load, pins are complete, importing stays light."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import referee
from referee.config import load
from referee.sim import ProviderSpec, start_server_process

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "docs", "bench", "examples", "deploy", ".ci", ".github")
TEXT = {".md", ".py", ".toml", ".yml", ".yaml", ".txt", ".jsonl", ".json", ".html", ""}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# In pieces, so that this file passes its own test.
BANNED_WORDS = ["ro" + "bust", "sophist" + "icated", "bla" + "zing", "seam" + "less", "cutting" + "-edge"]
BANNED = re.compile("|".join(BANNED_WORDS), re.IGNORECASE)
EMOJI = re.compile("[\U0001f300-\U0001faff\u2705\u274c\u2728\u2b50]")
MACHINE_PATH = re.compile(r"(?<![\w.:-])/(?:" + "ro" + "ot|wo" + r"rk)/")
HOME_PATH = re.compile(r"(?<![\w.:-])/(?:home|Users)/\w+/")

FENCE = re.compile(r"^```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^```", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
HEAVY = ("torch", "ray", "verl", "trl", "transformers", "typer")


def project_files() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in found if path.suffix in TEXT)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = project_files()
PAGES = [path for path in FILES if path.suffix == ".md"]
PROSE_AND_CODE = [path for path in FILES if path.suffix in (".md", ".py")]
# What is past may name what is gone.
CURRENT = [path for path in PAGES if path.name != "CHANGELOG.md"]


def blocks(language: str, without: str = "") -> list[Any]:
    """The fenced blocks of a language on all pages, as parameters named by page and line."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            if match["language"] == language and not (without and without in match["info"]):
                line = text.count("\n", 0, match.start()) + 2
                found.append(pytest.param(match["text"], id=f"{name_of(page)}:{line}"))
    return found


def commands(page: Path) -> Iterator[list[str]]:
    """What a page tells the reader to type: shell blocks, and inline code that begins with a command of ours."""
    text = page.read_text()
    shell = [match["text"] for match in FENCE.finditer(text) if match["language"] in ("bash", "sh", "shell")]
    lines = [line for block in shell for line in block.splitlines()]
    lines += [span for span in INLINE.findall(FENCE.sub("", text)) if span.startswith(("make ", "referee "))]
    for line in lines:
        for part in re.split(r"\|\s|&&|;", re.sub(r"\s#.*", "", line.removeprefix("$ "))):
            if part.strip().startswith(("make ", "referee ")):
                yield shlex.split(part)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))


def offenders(files: list[Path], everywhere: re.Pattern[str], outside_tests: re.Pattern[str]) -> list[str]:
    """Each file that holds what it must not, with the first such thing. A test may hold some things as data."""
    found = []
    for path in files:
        text = path.read_text()
        match = everywhere.search(text) or (None if name_of(path).startswith("tests/") else outside_tests.search(text))
        if match:
            found.append(f"{name_of(path)}: {match[0]!r}")
    return found


def test_words_are_plain() -> None:
    """No sales talk and no emoji in prose or code."""
    found = offenders(PROSE_AND_CODE, BANNED, EMOJI)
    assert not found, "; ".join(found)


def test_no_path_of_one_machine() -> None:
    """Nothing points into the folders of whoever wrote it."""
    found = offenders(FILES, MACHINE_PATH, HOME_PATH)
    assert not found, "; ".join(found)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    """A link to a file of ours leads to a file, and its anchor to a heading."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        aim = (page.parent / file).resolve() if file else page
        assert aim.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", FENCE.sub("", aim.read_text()), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{name_of(page)} links to {target}"


def test_documents_that_code_refers_to_exist() -> None:
    """Where code or a setting's description sends the reader to a document, it is there."""
    named = {(name_of(path), page) for path in FILES for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())}
    assert named, "the pattern finds nothing any more"
    missing = [f"{file} names {page}" for file, page in sorted(named) if not (ROOT / page).is_file()]
    assert not missing, "; ".join(missing)


def test_extras_are_installed_by_both_names() -> None:
    """Where a page or message says how to install an extra, it says so for a clone and for a release."""
    found = 0
    for path in [*CURRENT, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            for extras in re.findall(r"llm-referee\[([\w,]+)\]", line) if "pip install" in line else ():
                near = "\n".join(lines[max(number - 1, 0) : number + 2])
                assert f'.[{extras}]"' in near, f"{name_of(path)}:{number + 1}"
                assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
                found += 1
            for extras in re.findall(r'pip install ".\[([\w,]+)\]', line):
                near = "\n".join(lines[max(number - 1, 0) : number + 3])
                assert f"llm-referee[{extras}]" in near, f"{name_of(path)}:{number + 1}"
    assert found > 10


def test_what_is_installed_names_pages_as_its_users_open_them() -> None:
    """Code, messages and starters say `referee docs page`, not its file, and the page and its section exist."""
    docs = pytest.importorskip("referee.cli.docs")
    named = []
    for path in FILES:
        if name_of(path).startswith("src/"):
            text = path.read_text()
            assert not re.search(r"(?<![\w./-])docs/[a-z]", text), f"{name_of(path)}: say `referee docs page`"
            named += re.findall(r"`referee docs ([^`\s]+)`", text)
    assert len(named) > 20
    for page in named:
        folder, formatted, _ = page.partition("{")
        assert any(name.startswith(folder) for name in docs.pages()) if formatted else docs.text_of(page), page


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_pages_name_modules_that_exist(page: Path) -> None:
    """A Python file named in a document is there."""
    for span in INLINE.findall(FENCE.sub("", page.read_text())):
        if re.fullmatch(r"[\w./-]+\.py", span):
            homes = (ROOT / span, ROOT / "src" / span, ROOT / "src" / "referee" / span, page.parent / span)
            assert any(home.is_file() for home in homes), f"{name_of(page)} names {span}"


def test_architecture_lists_every_package_in_order() -> None:
    """The table of packages has all that exist and nothing else, from low to high."""
    table = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs" / "architecture.md").read_text(), re.M)
    listed = [[name.rstrip("/").removesuffix(".py") for name in INLINE.findall(row)] for row in table]
    package = ROOT / "src" / "referee"
    there = {path.stem for path in package.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert {name for row in listed for name in row} == there - {"__init__"}
    layers = ast.parse((ROOT / "tests" / "test_layers.py").read_text()).body
    ranks = next(ast.literal_eval(node.value) for node in layers if isinstance(node, ast.AnnAssign) and node.value)
    order = [next(rank for rank, names in enumerate(ranks) if name in names) for row in listed for name in row]
    assert order == sorted(order)


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_pages_name_make_targets_that_exist(page: Path) -> None:
    """`make x` in a document is a target of the Makefile."""
    for words in commands(page):
        if words[0] == "make":
            asked = {word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)}
            assert asked <= make_targets(), f"{name_of(page)}: {' '.join(words)}"


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_pages_name_commands_that_exist(page: Path) -> None:
    """`referee x --option` in a document is a command with that option."""
    typer_main = pytest.importorskip("typer.main")
    cli = pytest.importorskip("referee.cli.main", exc_type=ModuleNotFoundError)
    group = typer_main.get_command(cli.app)
    for words in commands(page):
        if words[0] == "referee":
            check_command(group, words[1:], f"{name_of(page)}: {' '.join(words)}")


def check_command(command: Any, words: list[str], where: str) -> None:
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        head, *words = words
        for name in head.split("|"):
            assert name in command.commands, f"{where}: there is no {name}"
        command = command.commands[head.split("|")[0]]
    known = {"--help"}.union(*([*parameter.opts, *parameter.secondary_opts] for parameter in command.params))
    for word in words:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in known, f"{where}: there is no {word}"


@pytest.mark.parametrize("block", blocks("toml"))
def test_toml_examples_load(block: str, tmp_path: Path) -> None:
    """A TOML block in a document is a configuration that referee takes."""
    file = tmp_path / "referee.toml"
    file.write_text(block)
    load(file)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_use_names_that_exist(block: str) -> None:
    """A Python block in a document parses, and what it takes from referee is there."""
    tree = ast.parse(block)
    ours: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "referee":
            module = importlib.import_module(node.module or "")
            ours |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            ours |= {a.asname or a.name: importlib.import_module(a.name) for a in node.names if a.name == "referee"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ours:
            assert hasattr(ours[node.value.id], node.attr), f"{node.value.id} has no {node.attr}"


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    """A simulated judge, for examples that ask one."""
    with start_server_process(ProviderSpec()) as server:
        yield server.url


@pytest.mark.parametrize("block", blocks("python", without="no-run"))
def test_python_examples_run(block: str, judge_url: str, tmp_path: Path) -> None:
    """A Python block runs as it stands beside the README's configuration, unless its fence says no-run."""
    readme = FENCE.finditer((ROOT / "README.md").read_text())
    settings = next((match["text"] for match in readme if match["language"] == "toml"), "")
    (tmp_path / "referee.toml").write_text(settings)
    (tmp_path / "rollouts.jsonl").write_text('{"prompt": "2 + 2?", "response": "It is 4."}\n')
    keys = {endpoint.key_env for endpoint in load(tmp_path / "referee.toml").endpoint} - {""}
    env = {**os.environ, **dict.fromkeys(keys, "sk-example"), "REFEREE_ENDPOINT_URL": judge_url}
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr


def test_version_is_said_once() -> None:
    """The package, its metadata and the changelog agree on the version."""
    assert "version" in PROJECT["dynamic"]  # the build reads src/referee/version.py
    newest = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert referee.__version__ == newest[1]


def test_public_names_are_sorted_and_there() -> None:
    """`__all__` is sorted, and every name in it can be had."""
    names = getattr(referee, "__all__", [])
    assert list(names) == sorted(names)
    assert all(hasattr(referee, name) for name in names)


def test_import_is_light() -> None:
    """Importing referee pulls in no trainer, no tensor library and no command line."""
    code = f"import json, sys, referee; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == []


def test_every_dependency_is_pinned() -> None:
    """What pyproject.toml asks for has an exact version in constraints.txt, and nothing there names a host."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    extras = PROJECT["optional-dependencies"]
    own = f"{PROJECT['name']}["
    ours = [name for item in extras["dev"] if item.startswith(own) for name in item[len(own) : -1].split(",")]
    asked = PROJECT["dependencies"] + extras["local"] + [item for name in ours for item in extras[name]]
    asked += [item for item in extras["dev"] if not item.startswith(own)]
    assert {re.split(r"[<>=!;\[ ]", item)[0] for item in asked} <= pinned


def test_ci_runs_targets_that_exist() -> None:
    """Both CI files call targets of the Makefile, the workflow all that the script does, which can be executed."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    script = ROOT / ".ci" / "run"
    steps = set(re.findall(r"^step ([a-z-]+)$", script.read_text(), re.M))
    assert {"check", "demo", "docs", "package"} <= steps <= set(re.findall(r"run: make ([a-z-]+)", workflow))
    assert steps <= make_targets()
    assert os.access(script, os.X_OK)
