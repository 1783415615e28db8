"""The other commands: init, doctor, cache, version, help."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import KEY, Run, Start, rows, write_config, write_rollouts
from typer.main import get_command
from typer.testing import CliRunner

from referee.cli.doctor import wrapped
from referee.cli.help import HEADINGS
from referee.cli.main import app
from referee.config import Config, load

OPENAI: dict[str, Any] = {"endpoint": {"provider": "openai"}}


def test_init_writes_a_starter_that_loads(tmp_path: Path, referee: Run) -> None:
    """The starter is valid, and means the defaults at the provider that it names."""
    done = referee("init")
    assert done.returncode == 0
    assert load(tmp_path / "referee.toml") == load(OPENAI)
    assert referee("init").returncode == 2
    assert referee("init", "--overwrite").returncode == 0


def test_init_for_rubrics_brings_rollouts_to_try(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The starter loads, also with its example criterion, and judges the file beside it, which uses four formats."""
    assert referee("init", "--judge", "rubric").returncode == 0
    path = tmp_path / "referee.toml"
    text = path.read_text()
    assert load(path) == load({**OPENAI, "judge": {"kind": "rubric", "combine": "weighted"}})
    head, example, tail = re.split(r"(# \[\[judge\.criterion\]\].*?)(?=^# \[judge\.gates)", text, flags=re.M | re.S)
    path.write_text(head + re.sub("^# ", "", example, flags=re.M) + tail)
    where = {"REFEREE_ENDPOINT_URL": provider().url, "OPENAI_API_KEY": KEY, "REFEREE_ENDPOINT_KEY_OVER_HTTP": "true"}
    done = referee("score", "rubric_rollouts.jsonl", "-o", "rewards.jsonl", **where)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "rewards.jsonl")
    assert len(found) == 32
    assert all(row["parts"][0]["name"] == "criterion 1" for row in found)
    ruled = {(row["id"], part["text"]): part["verdict"] for row in found for part in row["parts"]}
    assert ruled["fever-1", "At most 80 words"] == "yes"
    assert ruled["fever-4", "At most 80 words"] == "no"
    assert ruled["json-2", "All of it is JSON"] == "yes"
    (tmp_path / "rubric_rollouts.jsonl").write_text("mine")
    assert referee("init", "--judge", "rubric", "--overwrite").returncode == 0
    assert (tmp_path / "rubric_rollouts.jsonl").read_text() == "mine"


@pytest.mark.parametrize("name", ["starter.toml", "starter_rubric.toml", "starter_group.toml"])
def test_the_starter_shows_defaults_or_says_that_it_does_not(name: str) -> None:
    """What is commented out is the default, or its line says that it is an example."""
    text = resources.files("referee.cli").joinpath(name).read_text().partition("# [[judge.criterion]]")[0]
    known: Any = Config().public()
    table: Any = known
    for line in text.splitlines():
        header = re.match(r"(?:# )?\[+([a-z.]+)\]+", line)
        if header:
            table = known
            for name in header[1].split("."):
                table = table[name][0] if name in ("endpoint", "judge") else table[name]
        setting = re.match(r"# ([a-z_]+ = [^#]*)", line)
        if setting and "for example" not in line:
            [(name, value)] = tomllib.loads(setting[1]).items()
            default = table[name]
            assert (list(default) if isinstance(default, tuple) else default) == value, line


def test_doctor_finds_everything_in_place(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Settings, key, endpoint, probe and cache, and not a word of the key."""
    write_config(tmp_path / "referee.toml", provider(key=KEY).url, key_env="JUDGE_KEY")
    done = referee("doctor", JUDGE_KEY=KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "probe" in done.stdout
    assert "FAIL" not in done.stdout
    assert KEY not in done.stdout + done.stderr


def test_doctor_says_what_is_wrong(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A missing key, a wrong one and a wrong address each fail with the setting to change."""
    write_config(tmp_path / "referee.toml", provider(key=KEY).url, key_env="JUDGE_KEY")
    missing = referee("doctor")
    assert missing.returncode == 1
    assert "JUDGE_KEY" in missing.stdout
    wrong = referee("doctor", JUDGE_KEY="sk-wrong")
    assert wrong.returncode == 1
    assert "auth" in wrong.stdout
    (tmp_path / "referee.toml").write_text("[judge]\nkind = 'scores'\n")
    broken = referee("doctor")
    assert broken.returncode == 1
    assert "judge.kind" in broken.stdout


OFFLINE = [
    ("", "", None),
    ("", '[judge]\nprompt_file = "t.txt"', None),
    ("", '[judge]\nprompt_file = "wrong.txt"', "{{rubric}}"),
    ("", '[judge]\nprompt_file = "none.txt"', "none.txt"),
    ("", '[judge]\nprompt_file = "t.txt"\ncriteria = "be kind"', "judge.criteria"),
    ("", '[judge]\nsystem_prompt = "You judge."', "judge.system_prompt"),
    ("", '[cache]\npath = "t.txt"', "t.txt is not a cache"),
    ("", '[cache]\npath = "t.txt/cache.sqlite"', "cannot be created"),
    ("", '[ledger]\ndir = "t.txt/run"', "ledger"),
    ("", '[redis]\nurl = "redis://127.0.0.1:9"', None),
    ("", '[redis]\nurl = "redis://127.0.0.1:9"\npassword_env = "NO_SUCH_PASSWORD_OF_OURS"', "password_env"),
    ("", "[otel]\nenabled = true", None),
    ('runtime = "ray"', "", None if find_spec("ray") else "needs Ray"),
    ('runtime = "processes"\nworkers = 1', "", None),
]


@pytest.mark.parametrize(("top", "text", "wrong"), OFFLINE)
def test_doctor_offline_finds_what_needs_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str, text: str, wrong: str | None
) -> None:
    """Template, criteria, cache, ledger, Redis client and password, extras: checked without asking anybody."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("{{prompt}}\n{{response}}\n")
    (tmp_path / "wrong.txt").write_text("{{prompt}}\n{{response}}\n{{rubric}}\n")
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1", text)
    config = tmp_path / "referee.toml"
    config.write_text(f"{top}\n{config.read_text()}")
    done = CliRunner().invoke(app, ["doctor", "-c", "referee.toml", "--offline"])
    failed = [line for line in done.output.splitlines() if line.startswith("FAIL")]
    assert done.exit_code == (0 if wrong is None else 1), done.output
    assert len(failed) == (0 if wrong is None else 1), done.output
    assert wrong is None or wrong in failed[0]
    assert "1 workers" not in done.output


def test_doctor_breaks_lines_between_words() -> None:
    """In a terminal lines end within its width; a path is kept whole, and a pipe gets one line for each check."""
    text = "ok    cache: /a/rather/long/path/that/must/be/kept/whole.sqlite is writable (will be created)"
    assert wrapped(text, None) == text
    lines = wrapped(text, 40).splitlines()
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= 40 or "/path/" in line for line in lines)
    assert all(line.startswith(" " * 6) for line in lines[1:])


def test_cache_commands(tmp_path: Path, referee: Run, provider: Start) -> None:
    """What is cached is counted, explained and cleared out."""
    server = provider()
    write_rollouts(tmp_path / "in.jsonl", 5)
    write_config(tmp_path / "referee.toml", server.url)
    nothing = referee("cache", "stats")
    assert nothing.returncode == 2
    referee("score", "in.jsonl", "-o", "out.jsonl", "-q")
    (tmp_path / "referee.toml").write_text((tmp_path / "referee.toml").read_text() + "[judge]\ncriteria = 'brevity'\n")
    referee("score", "in.jsonl", "-o", "again.jsonl", "-q")
    assert "10 verdicts" in referee("cache", "stats").stdout
    first, second = (rows(tmp_path / name)[0]["key"] for name in ("out.jsonl", "again.jsonl"))
    told = referee("cache", "explain", first, second).stdout
    assert "criteria" in told
    assert "response" not in told
    assert "which differs in" in referee("cache", "explain", first[:12]).stdout
    assert referee("cache", "explain", "zzz").returncode == 2
    assert referee("cache", "prune").returncode == 2
    assert "7 verdicts deleted" in referee("cache", "prune", "--keep", "3").stdout
    assert "0 verdicts deleted" in referee("cache", "prune", "--older-than", "1d").stdout
    assert "3 verdicts deleted" in referee("cache", "prune", "--all").stdout


def test_the_simulator_can_be_made_to_refuse(referee: Run) -> None:
    """A key it should ask for is named by its variable; one that is not set is an error, and no key is shown."""
    unset = referee("sim", "--port", "0", "--key-env", "SIM_KEY")
    assert unset.returncode == 2
    assert "SIM_KEY" in unset.stderr
    assert referee("sim", "--port", "70000").returncode == 2  # the system would take another port
    pasted = referee("sim", "--port", "0", "--key-env", KEY)
    assert pasted.returncode == 2
    assert KEY not in pasted.stderr


def test_summaries_fit_a_narrow_terminal(referee: Run) -> None:
    """At 80 columns every command's summary is whole, on one line."""
    listed = referee("--help", COLUMNS="80").stdout.partition("Commands:")[2].strip().splitlines()
    assert len(listed) == len(app.registered_commands) + len(app.registered_groups)
    assert all(line.endswith(".") and "..." not in line and "…" not in line for line in listed), listed


def helps() -> Iterator[list[str]]:
    """Every command, and those below it."""
    todo: list[tuple[list[str], Any]] = [([], get_command(app))]
    for path, command in todo:
        yield path
        todo += [([*path, name], inner) for name, inner in getattr(command, "commands", {}).items()]


@pytest.mark.parametrize("path", list(helps()), ids=" ".join)
def test_help_fits_a_narrow_terminal(path: list[str], referee: Run) -> None:
    """At 80 columns nothing is cut: lines fit, words and defaults are whole, options stand under headings."""
    usage, *lines = referee(*path, "--help", COLUMNS="80").stdout.splitlines()
    assert len(usage) <= 80
    for line in lines:
        assert len(line) <= 80, line
        assert not line.endswith(("-", "…", "...")), line
        assert line.count("[") == line.count("]"), line
    sections = re.split(r"^(?=\S.*:$)", "\n".join(lines), flags=re.M)[1:]
    for section in sections:
        entries = re.split(r"^  (?=\S)", section, flags=re.M)[1:]
        assert all(re.search(r"[.?\]]$", entry.strip()) for entry in entries), section
        assert len(entries) <= 12 or section.startswith("Commands:"), section


def test_options_under_headings_exist() -> None:
    """What help.HEADINGS names are options of the command."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, titles in HEADINGS.items():
        known = {param.name for param in commands[name].params}
        assert {option for names in titles.values() for option in names.split()} <= known


def test_version_and_help(referee: Run) -> None:
    """Every command has help."""
    assert referee("--version").stdout.startswith("referee ")
    for command in ("score", "init", "doctor", "cache", "sim", "demo"):
        assert referee(command, "--help").returncode == 0
