"""Several judges on the command line: what doctor finds of each, and what a run says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import KEY, Run, Start, rows, write_config, write_rollouts
from typer.testing import CliRunner

from referee.cli.main import app


def write_judges(path: Path, cheap: str, strong: str, judge: str = "", more: str = "") -> None:
    """Two endpoints and a judge for each; `judge` is said of the second one."""
    path.write_text(
        f'[[endpoint]]\nname = "cheap"\nurl = "{cheap}"\nmodel = "small"\nkey_env = ""\nprice_in = 1\nprice_out = 1\n'
        f'[[endpoint]]\nname = "strong"\nurl = "{strong}"\nmodel = "large"\nkey_env = ""\n{more}'
        '[[judge]]\nname = "quality"\nendpoint = "cheap"\n'
        f'[[judge]]\nname = "safe"\nkind = "yes_no"\nendpoint = "strong"\n{judge}\n[cache]\npath = ""\n'
    )


def test_doctor_probes_every_judge_at_its_endpoints(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A line each: the model that answered, in which form, how fast, what it cost; an endpoint nobody names is said."""
    strong = provider(unsupported=("logprobs", "top_logprobs")).url
    spare = f'[[endpoint]]\nname = "spare"\nurl = "{strong}"\nmodel = "tiny"\nkey_env = ""\n'
    write_judges(tmp_path / "referee.toml", provider().url, strong, more=spare)
    done = referee("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    (quality,) = [line for line in lines if "judge quality at cheap" in line]
    (safe,) = [line for line in lines if "judge safe at strong" in line]
    assert quality.startswith("ok    probe: ")
    assert "small answered in" in quality
    assert "by JSON schema" in quality
    assert " out, $0." in quality
    assert "large answered in" in safe
    assert "gives no log-probabilities" in safe
    assert "cost unknown" in safe
    assert [line for line in lines if line.startswith("warn  endpoint spare: no judge names it")]
    assert "2 judges (score, yes_no)" in done.stdout


def test_doctor_probes_judges_that_teams_name(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Each judge is probed alone, whichever of them a team may use."""
    team = '[[team]]\nname = "math"\ntoken_env = "MATH_TOKEN"\njudges = ["quality"]\n'
    write_judges(tmp_path / "referee.toml", provider().url, provider().url, more=team)
    done = referee("doctor", MATH_TOKEN="token-of-math-0123456789")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok    team math: judges quality" in done.stdout
    assert done.stdout.count("answered in") == 2


@pytest.mark.parametrize(("judge", "mark", "status"), [("", "FAIL", 1), ("optional = true", "warn", 0)])
def test_doctor_fails_for_judges_that_count(
    tmp_path: Path, referee: Run, provider: Start, judge: str, mark: str, status: int
) -> None:
    """One that cannot work is named with what to change; the reward of an optional one's absence is made without it."""
    write_judges(tmp_path / "referee.toml", provider().url, provider(key=KEY).url, judge)
    done = referee("doctor")
    assert done.returncode == status, done.stdout
    (safe,) = [line for line in done.stdout.splitlines() if "judge safe at strong" in line]
    assert safe.startswith(f"{mark}  probe: ")
    assert "endpoint.key_env" in safe
    assert "ok    probe: judge quality at cheap" in done.stdout


def test_doctor_counts_a_replica_that_is_down_as_a_warning(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The judge works at its other endpoint. What has no verdict says what to change."""
    one, other = provider().url, provider(faults={"no_verdict": 1.0}).url
    (tmp_path / "referee.toml").write_text(
        "".join(
            f'[[endpoint]]\nname = "{name}"\nurl = "{url}"\nmodel = "m"\nkey_env = ""\n'
            for name, url in (("a", one), ("b", other))
        )
        + '[judge]\nask_again = 0\n[cache]\npath = ""\n'
    )
    done = referee("doctor")
    assert done.returncode == 0, done.stdout
    assert "ok    probe: judge judge at a" in done.stdout
    (down,) = [line for line in done.stdout.splitlines() if line.startswith("warn")]
    assert "judge judge at b: no verdict (no_verdict: " in down
    assert "To change: another model" in down


def test_doctor_offline_checks_every_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The template of the second one is wrong: it is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.txt").write_text("{{prompt}}\n{{response}}\n{{rubric}}\n")
    nowhere = "http://127.0.0.1:9/v1"
    write_judges(tmp_path / "referee.toml", nowhere, nowhere, 'prompt_file = "wrong.txt"')
    done = CliRunner().invoke(app, ["doctor", "-c", "referee.toml", "--offline"])
    assert done.exit_code == 1
    (failed,) = [line for line in done.output.splitlines() if line.startswith("FAIL")]
    assert failed.startswith("FAIL  judge safe: ")
    assert "{{rubric}}" in failed
    assert "ok    judge quality: score, weight 1" in done.output


@pytest.mark.parametrize("kind", ['kind = "monitor"', 'kind = "reference"', "ask_above = 0.5", 'kind = "integer"'])
def test_doctor_asks_every_kind_of_judge(tmp_path: Path, referee: Run, provider: Start, kind: str) -> None:
    """The probe has a reference, reasoning, and a rule score above the bar."""
    write_config(tmp_path / "referee.toml", provider().url, f"[judge]\n{kind}")
    done = referee("doctor")
    assert done.returncode == 0, done.stdout
    assert "answered in" in done.stdout


def test_the_summary_has_a_line_for_each_of_several_judges(tmp_path: Path, referee: Run, provider: Start) -> None:
    """What it said, cost, and by which model; also in a resumed run, for the rows that were kept. The rows have model
    and endpoint, together and for each judge."""
    write_judges(tmp_path / "referee.toml", provider().url, provider().url, "weight = 0.5")
    write_rollouts(tmp_path / "in.jsonl", 8)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert "  judge quality (weight 1): 8 scored, 0 unscored, mean 0." in done.stderr
    assert "  judge safe (weight 0.5): 8 scored, 0 unscored, mean 0." in done.stderr
    assert "by large at strong" in done.stderr
    for row in rows(tmp_path / "out.jsonl"):
        assert (row["model"], row["endpoint"]) == ("small, large", "cheap, strong")
        assert [(said["model"], said["endpoint"]) for said in row["judges"].values()] == [
            ("small", "cheap"),
            ("large", "strong"),
        ]
    again = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert "  judge quality (weight 1): 8 scored, 0 unscored, mean 0." in again.stderr
    assert "$0.0000, by small at cheap" in again.stderr
