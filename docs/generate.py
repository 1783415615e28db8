"""Writes docs/cli.md and docs/configuration.md from the code they describe: `python docs/generate.py`.

A test compares both with what this would write, so they cannot go stale.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import typer

from referee.cli.main import app
from referee.config import audit_schema, judge_schema, schema, team_schema

HERE = Path(__file__).parent
PAGE = re.compile(r"`referee docs ([\w/-]+)`")
SECTIONS = {
    "JudgeConfig": "[judge]",
    "Gates": "[judge.gates]",
    "Until": "[judge.until]",
    "EndpointConfig": "[[endpoint]]",
    "LocalConfig": "[endpoint.local]",
    "LimitsConfig": "[limits]",
    "BatchConfig": "[batch]",
    "CacheConfig": "[cache]",
    "RedisConfig": "[redis]",
    "ShapingConfig": "[shaping]",
    "LengthConfig": "[shaping.length]",
    "MissingConfig": "[missing]",
    "AuditConfig": "[audit]",
    "LedgerConfig": "[ledger]",
    "OtelConfig": "[otel]",
    "ServeConfig": "[serve]",
    "TeamConfig": "[[team]]",
    "Config": "(top level)",
}


def configuration() -> str:
    """Every section and setting, with its default and its sentence."""
    lines = [
        "# Configuration",
        "",
        "One TOML file, or a mapping with the same keys given to `Referee.from_config`. Everything is optional;",
        "unknown keys are refused with the nearest known name. Environment variables override keys:",
        "`REFEREE_LIMITS_RPM=500` is `[limits] rpm`, `REFEREE_ENDPOINT_MODEL` is the first endpoint's model. They",
        "override a file and a mapping; a `Config` object is final.",
        "`referee init` writes a commented starter. Endpoints by provider: [providers](providers/README.md). Made by",
        "`python docs/generate.py`.",
        "",
        "Relative paths: `judge.prompt_file` and `rubric_file`, `endpoint.key_file`, `redis.ca_file` and",
        "`audit.canaries` in a TOML file are relative to the folder of that file; from Python or the environment, and",
        "for everything that is written (`cache.path`, `ledger.dir`), to the current directory. `~` is the home",
        "directory. Errors show the full path.",
    ]
    modules = (schema, judge_schema, audit_schema, team_schema)
    trees = [ast.parse(Path(module.__file__).read_text(encoding="utf-8")) for module in modules]
    classes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, section in SECTIONS.items():
        node = classes[name]
        lines += ["", f"## `{section}`", "", ast.get_docstring(node) or ""]
        lines += ["", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in _fields(node)]
    return PAGE.sub(_link, "\n".join(lines)) + "\n"


def _link(named: re.Match[str]) -> str:
    """The page that a sentence names for readers at a terminal, as a link. A folder's page is its README."""
    file = (
        f"{named[1]}/README.md"
        if (HERE / named[1]).is_dir() and not (HERE / f"{named[1]}.md").exists()
        else f"{named[1]}.md"
    )
    return f"[{named[1]}]({file})"


def _fields(node: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Simple settings of one section, each with the sentence below it. One without is an error."""
    found: list[tuple[str, str, str]] = []
    for item, below in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if isinstance(item.value, ast.Call):
            if "dict" not in ast.unparse(item.value):
                continue
            default = "{}"
        else:
            assert item.value is not None
            given = ast.literal_eval(item.value)
            default = "unset" if given is None else json.dumps(given)
        if not isinstance(below, ast.Expr) or not isinstance(below.value, ast.Constant):
            raise ValueError(f"{node.name}.{item.target.id} has no sentence that says what it means")
        text = " ".join(str(below.value.value).split()).replace("|", "\\|")
        found.append((item.target.id, default if default == "unset" else f"`{default}`", text))
    return found


def commands() -> str:
    """The help of every command."""
    root = typer.main.get_command(app)
    lines = ["# Command line", "", "What `--help` says. Made by `python docs/generate.py`."]
    lines += ["What `referee score` reads and writes is in [rollouts.md](rollouts.md)."]
    for path, command in _walk("referee", root):
        context = command.make_context(path, [], resilient_parsing=True, terminal_width=100, max_content_width=100)
        lines += ["", f"## {path}", "", "```text", command.get_help(context).replace("\b", "").rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _walk(path: str, command: Any) -> list[tuple[str, Any]]:
    found = [(path, command)]
    for name, inner in getattr(command, "commands", {}).items():
        found += _walk(f"{path} {name}", inner)
    return found


DOCUMENTS = {"configuration.md": configuration, "cli.md": commands}

if __name__ == "__main__":
    for name, make in DOCUMENTS.items():
        (HERE / name).write_text(make(), encoding="utf-8")
