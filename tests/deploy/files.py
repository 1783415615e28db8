"""The files of deploy/, read: what their tests stand on. Needs nothing of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


def read(name: str) -> Any:
    """A YAML file of deploy/."""
    return yaml.safe_load((DEPLOY / name).read_text())


def dockerfile() -> list[list[tuple[str, str]]]:
    """The instructions of the Dockerfile, stage by stage."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    stages: list[list[tuple[str, str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, value = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, value.strip()))
    return stages


def unit() -> dict[str, list[str]]:
    """The settings of the systemd unit, each with its values."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "referee.service").read_text().splitlines():
        if re.match(r"\w+=", line):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def image() -> dict[str, str]:
    """The settings of the finished image, by instruction; the last of each counts."""
    return dict(dockerfile()[-1])


def command() -> list[str]:
    """What a container runs: ENTRYPOINT and CMD in exec form."""
    words: list[str] = json.loads(image()["ENTRYPOINT"]) + json.loads(image()["CMD"])
    return words


def health_check() -> list[str]:
    """The command of HEALTHCHECK."""
    words: list[str] = json.loads(image()["HEALTHCHECK"].partition("CMD ")[2])
    return words


def container() -> dict[str, Any]:
    """The container of the Deployment."""
    (found,) = read("kubernetes/deployment.yaml")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def expressions() -> Iterator[str]:
    """Every PromQL expression: alerts, dashboard, the adapter's rule."""
    for group in read("alerts.yml")["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((DEPLOY / "grafana" / "referee.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for rule in read("kubernetes/prometheus-adapter.yaml")["rules"]["custom"]:
        yield rule["seriesQuery"]
