"""Writes docs/cli.md and docs/configuration.md from the code they describe: `python docs/generate.py`.

A test compares both with what this would write, so they cannot go stale.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import typer

from referee.cli.main import app
from referee.config import schema

HERE = Path(__file__).parent
SECTIONS = {
    "JudgeConfig": "[judge]",
    "Gates": "[judge.gates]",
    "EndpointConfig": "[[endpoint]]",
    "LimitsConfig": "[limits]",
    "CacheConfig": "[cache]",
    "RedisConfig": "[redis]",
    "ShapingConfig": "[shaping]",
    "LengthConfig": "[shaping.length]",
    "MissingConfig": "[missing]",
    "LedgerConfig": "[ledger]",
    "OtelConfig": "[otel]",
    "ServeConfig": "[serve]",
    "Config": "(top level)",
}


def configuration() -> str:
    """Every section and setting, with its default and its sentence."""
    lines = [
        "# Configuration",
        "",
        "One TOML file, or a mapping with the same keys given to `Referee.from_config`. Everything is optional;",
        "unknown keys are refused with the nearest known name. Environment variables override keys:",
        "`REFEREE_LIMITS_RPM=500` is `[limits] rpm`, `REFEREE_ENDPOINT_MODEL` is the first endpoint's model.",
        "`referee init` writes a commented starter. Made by `python docs/generate.py`.",
    ]
    tree = ast.parse(Path(schema.__file__).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, section in SECTIONS.items():
        node = classes[name]
        lines += ["", f"## `{section}`", "", ast.get_docstring(node) or ""]
        lines += ["", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in _fields(node)]
    return "\n".join(lines) + "\n"


def _fields(node: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Simple settings of one section. A sentence that follows several fields speaks for all of them."""
    found: list[tuple[str, str, str]] = []
    waiting: list[tuple[str, str]] = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            default = ast.unparse(item.value) if item.value else ""
            if default.startswith("field("):
                if "dict" not in default:
                    continue
                default = "{}"
            waiting.append((item.target.id, f"`{default}`"))
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and waiting:
            text = " ".join(str(item.value.value).split()).replace("|", "\\|")
            found += [(key, default, text) for key, default in waiting]
            waiting = []
    return found + [(key, default, "") for key, default in waiting]


def commands() -> str:
    """The help of every command."""
    root = typer.main.get_command(app)
    lines = ["# Command line", "", "What `--help` says. Made by `python docs/generate.py`."]
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
