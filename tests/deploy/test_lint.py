"""The files of deploy/ pass the linters of their formats: `make test-deploy`, in an environment of its own.

A tool that is no package of PyPI (promtool, docker compose, kubectl, systemd-analyze) is used where it is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from tests.deploy.files import DEPLOY, KUBERNETES, ROOT, expressions, read

BIN = Path(sys.executable).parent
PATH = f"{BIN}:{os.environ['PATH']}"
RELEASES = ("1.29", "1.33", "1.37")
"""Of Kubernetes: what the manifests are checked against."""
NOT_OF_KUBERNETES = {"kustomization.yaml", "prometheus-adapter.yaml", "servicemonitor.yaml"}


def run(*words: str | Path, cwd: Path = ROOT, **env: str) -> str:
    """What a command prints; it must end with 0."""
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, "PATH": PATH, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def need(tool: str, *words: str) -> None:
    """Skip where a tool of the system is missing."""
    found = shutil.which(tool, path=PATH)
    if not found or (words and subprocess.run([found, *words], capture_output=True, check=False).returncode):
        pytest.skip(f"{' '.join([tool, *words])} is not on this machine")


def test_dockerfile() -> None:
    """hadolint has nothing to say."""
    assert not run("hadolint", DEPLOY / "Dockerfile")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("*.yaml")), ids=lambda path: path.name)
def test_manifests(path: Path, release: str) -> None:
    """Each is valid for old and new releases, without a field they do not know."""
    if path.name in NOT_OF_KUBERNETES:
        assert yaml.safe_load(path.read_text())
        return
    kubernetes_validate.validate(yaml.safe_load(path.read_text()), release, strict=True)


def test_kustomization() -> None:
    """kubectl builds it: the pod mounts the ConfigMap that is made, runs the tagged image, and all of it is valid."""
    need("kubectl")
    made = {item["kind"]: item for item in yaml.safe_load_all(run("kubectl", "kustomize", KUBERNETES))}
    for item in made.values():
        kubernetes_validate.validate(item, RELEASES[-1], strict=True)
    pod = made["Deployment"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"]
    assert pod["containers"][0]["image"].startswith("referee:")
    assert set(made["ConfigMap"]["data"]) == {"referee.toml"}
    assert made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]


def test_compose() -> None:
    """docker compose takes it, and refuses to start without its secrets."""
    need("docker", "compose", "version")
    names = ("JUDGE_TOKEN", "OPENAI_API_KEY", "GRAFANA_PASSWORD")
    run("docker", "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet", **dict.fromkeys(names, "x"))
    for name in names:
        given = {**dict.fromkeys(names, "x"), name: ""}
        with pytest.raises(AssertionError, match=f"{name} is missing a value: set it in .env"):
            run("docker", "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet", **given)


def test_compose_is_closed() -> None:
    """compose-lint finds nothing of weight: no privileges, no open port, no secret in the file."""
    run("compose-lint", "check", "--fail-on", "high", DEPLOY / "compose.yaml")


def test_alerts(tmp_path: Path) -> None:
    """promtool takes them; in trouble each fires, in health and before the first sample none."""
    need("promtool")
    run("promtool", "check", "rules", DEPLOY / "alerts.yml")
    for path in (DEPLOY / "alerts.yml", Path(__file__).with_name("alerts_test.yml")):
        shutil.copy(path, tmp_path)
    run("promtool", "test", "rules", "alerts_test.yml", cwd=tmp_path)


def test_every_alert_is_tried() -> None:
    """alerts_test.yml names them all, in each of its cases."""
    names = {rule["alert"] for group in read("alerts.yml")["groups"] for rule in group["rules"]}
    for case in yaml.safe_load(Path(__file__).with_name("alerts_test.yml").read_text())["tests"]:
        assert {item["alertname"] for item in case["alert_rule_test"]} == names, case["name"]


def test_prometheus(tmp_path: Path) -> None:
    """promtool takes the configuration, where its files are."""
    need("promtool")
    text = (DEPLOY / "prometheus.yml").read_text().replace("/etc/prometheus", str(DEPLOY))
    (tmp_path / "token").write_text("x")
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/judge_token", str(tmp_path / "token")))
    run("promtool", "check", "config", tmp_path / "prometheus.yml")


def test_queries(tmp_path: Path) -> None:
    """promtool can read every query of the dashboard, once Grafana has filled in its variables."""
    need("promtool")
    filled = [text.replace("$__rate_interval", "1m").replace("$__range", "1h") for text in expressions()]
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(filled)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    run("promtool", "check", "rules", tmp_path / "rules.yml")


def test_unit(tmp_path: Path) -> None:
    """systemd takes it as it is, and finds it closed; only the program is not installed here."""
    need("systemd-analyze")
    text = (DEPLOY / "referee.service").read_text().replace("/opt/referee/bin/referee", "/bin/true")
    unit = tmp_path / "referee.service"
    unit.write_text(text)
    assert unit.name not in run("systemd-analyze", "verify", unit)
    said = run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
    assert "Overall exposure level" in said
