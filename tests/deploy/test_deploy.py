"""The files of deploy/ say what the service does: its flags, settings, variables, paths, ports, metrics and times."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from prometheus_client.parser import text_string_to_metric_families
from tests.deploy.files import (
    DEPLOY,
    KUBERNETES,
    ROOT,
    command,
    container,
    dockerfile,
    expressions,
    health_check,
    image,
    read,
    unit,
)
from tests.server.harness import TOKEN, samples, serving
from tests.server.test_prometheus import JUDGES
from tests.test_project import check_command

from referee import __version__
from referee.cli.main import app
from referee.config import Config, load
from referee.server.listen import CLOSE_TIMEOUT_S
from referee.server.service import CANCEL_GRACE_S

CONFIG = "/etc/referee/referee.toml"
HOME = "/var/lib/referee"
PORT = 8900
CLOSING = 5
"""Seconds to write out cache and ledger, beside what draining may take."""


def compose_environment() -> dict[str, str]:
    found: dict[str, str] = read("compose.yaml")["services"]["referee"]["environment"]
    return found


def example_environment() -> set[str]:
    return set(re.findall(r"^(\w+)=", (DEPLOY / "env.example").read_text(), re.M))


def secrets_of(config: Config) -> set[str]:
    """The variables a configuration reads a secret from."""
    names = {config.serve.token_env, config.redis.password_env, *(endpoint.key_env for endpoint in config.endpoint)}
    return names - {""}


COMMANDS = {"image": command(), "systemd": shlex.split(unit()["ExecStart"][0])}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_commands_have_flags_that_exist(words: list[str]) -> None:
    """What a container or a unit starts is `referee serve` with options it has, and the file that is put there."""
    assert words[0].rpartition("/")[2] == "referee"
    check_command(typer.main.get_command(app), words[1:], " ".join(words))
    assert words[words.index("--config") + 1] == CONFIG
    assert words[words.index("--port") + 1] == str(PORT)


@pytest.mark.parametrize("folder", [DEPLOY / "config", KUBERNETES], ids=["config", "kubernetes"])
def test_configurations_load(folder: Any) -> None:
    """By referee's own loader, with a token, and a deadline below those of the trainers that ask."""
    config = load(folder / "referee.toml", {})
    assert config.serve.token_env
    assert config.limits.deadline < 120
    assert config.limits.budget_usd


def test_every_variable_is_one_that_the_service_reads() -> None:
    """What is passed in is a setting or a secret of the configuration, and all of its secrets are."""
    given = compose_environment()
    settings = {name: value for name, value in given.items() if name.startswith("REFEREE_")}
    config = load(DEPLOY / "config" / "referee.toml", settings)
    assert secrets_of(config) == set(given) - set(settings)
    assert example_environment() == secrets_of(config) | {"GRAFANA_PASSWORD"}
    assert all(re.fullmatch(rf"\$\{{{name}:\?.+\}}", given[name]) for name in secrets_of(config))
    in_cluster = load(KUBERNETES / "referee.toml", {})
    assert secrets_of(in_cluster) == set(read("kubernetes/secret.example.yaml")["stringData"])


def test_no_file_holds_a_secret() -> None:
    """Examples name the variables and leave their values empty."""
    assert set(read("kubernetes/secret.example.yaml")["stringData"].values()) == {""}
    assert not re.search(r"^\w+=.", (DEPLOY / "env.example").read_text(), re.M)
    assert not any(name == "ARG" for stage in dockerfile() for name, _ in stage)


def test_names_of_kubernetes_services_do_not_become_settings() -> None:
    """Kubernetes would set REFEREE_SERVICE_HOST in the pod, which looks like a setting."""
    assert read("kubernetes/deployment.yaml")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_ports_agree() -> None:
    """The image, the checks, Compose, Prometheus and Kubernetes mean the same port; Compose opens all on loopback."""
    assert image()["EXPOSE"] == str(PORT)
    assert f"127.0.0.1:{PORT}/" in " ".join(health_check())
    services = read("compose.yaml")["services"]
    assert services["referee"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ()))
    (scraped,) = read("prometheus.yml")["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"referee:{PORT}"]}]
    assert container()["ports"] == [{"name": "http", "containerPort": PORT}]
    (port,) = read("kubernetes/service.yaml")["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("http", PORT, "http")
    (endpoint,) = read("kubernetes/servicemonitor.yaml")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert {"port": "http", "protocol": "TCP"} in read("kubernetes/networkpolicy.yaml")["spec"]["ingress"][0]["ports"]


def test_paths_agree() -> None:
    """The configuration and the folder that is written are where image, Compose, systemd and Kubernetes put them."""
    assert image()["WORKDIR"] == HOME
    assert f"--home-dir {HOME} " in image()["RUN"]
    targets = {item.split(":")[1] for item in read("compose.yaml")["services"]["referee"]["volumes"]}
    assert targets == {CONFIG.rpartition("/")[0], HOME}
    assert (unit()["WorkingDirectory"], unit()["StateDirectory"]) == ([HOME], [HOME.rpartition("/")[2]])
    mounts = {item["name"]: item["mountPath"] for item in container()["volumeMounts"]}
    assert (mounts["config"], mounts["data"]) == (CONFIG.rpartition("/")[0], HOME)
    (config,) = read("kubernetes/kustomization.yaml")["configMapGenerator"]
    assert config["files"] == ["referee.toml"]
    volumes = {item["name"]: item for item in read("kubernetes/deployment.yaml")["spec"]["template"]["spec"]["volumes"]}
    room = int(volumes["data"]["emptyDir"]["sizeLimit"].removesuffix("Gi"))
    assert load(KUBERNETES / "referee.toml", {}).cache.max_gb < room


def test_checks_ask_for_paths_that_exist() -> None:
    """Alive is /healthz, ready is /readyz, and the service answers at both without its token."""
    found = container()
    probes = {kind: found[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert "/healthz" in " ".join(health_check())

    async def main() -> list[int]:
        async with serving(token=TOKEN) as served:
            return [(await served.get(path)).status_code for path in sorted({*probes.values()})]

    assert set(asyncio.run(main())) == {200}


def test_users_agree() -> None:
    """The image's user is a number other than 0, as runAsNonRoot needs it, and Kubernetes names the same."""
    user, _, group = image()["USER"].partition(":")
    context = read("kubernetes/deployment.yaml")["spec"]["template"]["spec"]["securityContext"]
    assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
    assert int(user) > 0
    assert f"--uid {user} " in image()["RUN"]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_draining_ends_before_the_kill() -> None:
    """Whoever stops the service waits longer than it may take to finish, answer and close."""
    config, in_cluster = load(DEPLOY / "config" / "referee.toml", {}), load(KUBERNETES / "referee.toml", {})
    ending = CANCEL_GRACE_S + CLOSE_TIMEOUT_S + CLOSING
    needed = config.serve.drain_seconds + ending
    assert seconds(read("compose.yaml")["services"]["referee"]["stop_grace_period"]) > needed
    assert seconds(unit()["TimeoutStopSec"][0]) > needed
    pod = read("kubernetes/deployment.yaml")["spec"]["template"]["spec"]
    waited = seconds(container()["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > waited + in_cluster.serve.drain_seconds + ending


def test_the_unit_leaves_what_metrics_are_read_from() -> None:
    """Without /proc/stat there is no process_cpu_seconds_total, which the dashboard asks for."""
    assert "ProcSubset" not in unit()


def test_versions_agree() -> None:
    """Tags of the image are the version of the package."""
    assert read("compose.yaml")["services"]["referee"]["image"] == f"referee:{__version__}"
    assert read("kubernetes/kustomization.yaml")["images"][0]["newTag"] == __version__
    assert f"-t referee:{__version__} " in (DEPLOY / "Dockerfile").read_text()


def test_images_are_pinned() -> None:
    """Every image of others has a tag, and not the one that moves with each release."""
    images = [value.split(" AS ")[0] for stage in dockerfile() for name, value in stage if name == "FROM"]
    images += [service["image"] for service in read("compose.yaml")["services"].values()]
    assert all(re.fullmatch(r"[\w./-]+:v?\d[\w.-]+", name) for name in images), images


def test_the_build_sees_what_it_copies() -> None:
    """.dockerignore lets in each source of COPY, and nothing that is not copied."""
    copied = [words.split()[:-1] for name, words in dockerfile()[0] if name == "COPY"]
    sources = {source for words in copied for source in words}
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == sources
    assert all((ROOT / source).exists() for source in sources)


def test_kubernetes_applies_every_file() -> None:
    """Those that are not applied with the rest say so by what they are."""
    apart = {"kustomization.yaml", "secret.example.yaml", "servicemonitor.yaml", "prometheus-adapter.yaml"}
    there = {path.name for path in KUBERNETES.glob("*.yaml")}
    assert set(read("kubernetes/kustomization.yaml")["resources"]) == there - apart


def test_the_autoscaler_asks_for_what_the_adapter_gives() -> None:
    """By the queue of a pod, well below the length at which callers are sent away."""
    (metric,) = read("kubernetes/autoscaling.yaml")["spec"]["metrics"]
    (rule,) = read("kubernetes/prometheus-adapter.yaml")["rules"]["custom"]
    assert rule["seriesQuery"].partition("{")[0] == metric["pods"]["metric"]["name"]
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}
    target = int(metric["pods"]["target"]["averageValue"])
    assert target <= load(KUBERNETES / "referee.toml", {}).serve.max_queue / 2


OF_TARGETS = {"job", "instance", "namespace", "pod", "le"}
"""Labels that Prometheus and the Prometheus operator add to every series; le is a histogram's."""


TEAM = {"name": "math", "token_env": "MATH_TOKEN", "budget_usd_day": 1.0}
PRICES = {"price_in": 1.0, "price_out": 1.0}


def shown(folder: Path) -> dict[str, set[str]]:
    """What /metrics shows of several judges and a team with a budget: names, each with its labels."""
    sections: dict[str, Any] = {"judge": JUDGES, "endpoint": PRICES, "team": [TEAM]}
    sections["serve"] = {"state": str(folder / "serve.sqlite")}
    bearer = {"authorization": f"Bearer {TOKEN}"}

    async def main() -> str:
        async with serving(token=TOKEN, **sections) as served:
            assert (await served.post("/v1/score", {"samples": samples(3)}, headers=bearer)).status_code == 200
            return (await served.get("/metrics", headers=bearer)).text

    families = text_string_to_metric_families(asyncio.run(main()))
    found: dict[str, set[str]] = {}
    for item in (item for family in families for item in family.samples):
        found.setdefault(item.name, set()).update(item.labels)
    return found


def test_metrics_that_are_asked_for_exist(tmp_path: Path) -> None:
    """Alerts, dashboard and autoscaler use names that /metrics shows, and labels that these have."""
    found = shown(tmp_path)
    texts = list(expressions())
    assert len(texts) > 40
    for text in texts:
        names = set(re.findall(r"\b(?:referee|process)_\w+", text))
        assert names <= set(found), text
        labels = set().union(*(found[name] for name in names)) | OF_TARGETS
        named = re.findall(r"\b(?:by|on) \(([^)]*)\)", text) + re.findall(r"[{,] ?(\w+)(?:=|!)", text)
        assert {word.strip() for words in named for word in words.split(",")} <= labels | {""}, text


def test_the_dashboard_is_whole() -> None:
    """It loads, its panels have places and ids of their own, and Grafana's provisioning finds it."""
    board = json.loads((DEPLOY / "grafana" / "referee.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])
    (provider,) = read("grafana/provisioning/dashboards/referee.yaml")["providers"]
    targets = dict(item.split(":")[:2] for item in read("compose.yaml")["services"]["grafana"]["volumes"])
    assert targets["./grafana/referee.json"] == f"{provider['options']['path']}/referee.json"


def test_every_alert_is_in_the_runbook() -> None:
    """docs/operations.md says of each alert what it means and what to do, and of no other."""
    names = [rule["alert"] for group in read("alerts.yml")["groups"] for rule in group["rules"]]
    listed = re.findall(r"^\| `(Referee\w+)` \|", (ROOT / "docs" / "operations.md").read_text(), re.M)
    assert listed == names
