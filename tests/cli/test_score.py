"""`referee score` as a user runs it: a file in, rewards out, in order, resumable, and clear about what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import KEY, Run, Server, Start, environment, rows, write_config, write_rollouts
from tests.contracts.group_judges import KIND, registered
from typer.testing import CliRunner

from referee import clock
from referee.cache import SqliteCache
from referee.cli.main import app


def setup(tmp_path: Path, server: Server, count: int, text: str = "") -> None:
    write_rollouts(tmp_path / "in.jsonl", count)
    write_config(tmp_path / "referee.toml", server.url, text)


def test_a_file_is_scored_in_order(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Forty rollouts, forty rows, each with the score its response deserves; a record beside them."""
    setup(tmp_path, provider(), 40)
    done = referee("score", "in.jsonl", "-c", "referee.toml", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert [row["id"] for row in found] == [f"r{n}" for n in range(40)]
    assert [row["score"] for row in found] == [n % 10 + 1 for n in range(40)]
    assert "40 scored" in done.stderr
    assert list((tmp_path / "out.run").glob("*.jsonl"))
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o077 == 0


def test_group_terms_reach_across_the_file(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Members of a group far apart share one median."""
    server = provider()
    with (tmp_path / "in.jsonl").open("w") as stream:
        for n in range(1000):
            row = {
                "prompt": "p",
                "response": f"[[quality=10]] {n}",
                "group": f"g{n % 500}",
                "length": 10 if n < 500 else 30,
            }
            stream.write(json.dumps(row) + "\n")
    write_config(tmp_path / "referee.toml", server.url, "[shaping.length]\nenable = true")
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "-q").returncode == 0
    assert {row["median_length"] for row in rows(tmp_path / "out.jsonl")} == {20.0}


def test_a_judge_of_groups_is_given_groups_that_lie_far_apart(
    tmp_path: Path, provider: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is judged in pieces, but never a part of a group."""
    server = provider()
    with (tmp_path / "in.jsonl").open("w") as stream:
        for n in range(600):
            row = {"prompt": "p", "response": f"[[quality={n % 10 + 1}]] {n}", "id": str(n), "group": f"g{n % 300}"}
            stream.write(json.dumps(row) + "\n")
    write_config(tmp_path / "referee.toml", server.url, f'[judge]\nkind = "{KIND}"')
    monkeypatch.chdir(tmp_path)
    with registered():
        done = CliRunner().invoke(app, ["score", "in.jsonl", "-c", "referee.toml", "-o", "out.jsonl", "-q"])
    assert done.exit_code == 0, done.output
    assert [row["why"] for row in rows(tmp_path / "out.jsonl")] == [f"{n % 300},{n % 300 + 300}" for n in range(600)]


def test_standard_input_and_output(tmp_path: Path, referee: Run, provider: Start) -> None:
    """`-` reads the rollouts from a pipe and writes the rewards to one."""
    setup(tmp_path, provider(), 8)
    done = referee("score", "-", "-o", "-", "-q", stdin=(tmp_path / "in.jsonl").read_text())
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == [1, 2, 3, 4, 5, 6, 7, 8]


BAD = [
    ('{"prompt": "p"}', "response"),
    ('{"prompt": "p", "response": 5}', "response"),
    ('{"prompt": "p", "response": "r", "rule_score": NaN}', "rule_score"),
    ('{"prompt": "p", "response": "r", "length": "7"}', "length"),
    ('{"prompt": "p", "response": "r"', "JSON"),
]


@pytest.mark.parametrize(("line", "word"), BAD)
def test_bad_lines_are_named_before_anything_is_spent(
    tmp_path: Path, referee: Run, provider: Start, line: str, word: str
) -> None:
    """The error names the line and the field, and the provider was not asked."""
    server = provider()
    setup(tmp_path, server, 3)
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.write(line + "\n")
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "line 4" in done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert server.stats().received == 0
    assert not (tmp_path / "out.jsonl").exists()


def test_a_misspelt_column_is_said_once_before_anything_is_spent(tmp_path: Path, referee: Run, provider: Start) -> None:
    """One that is nearly ours is a warning, in front of all else; others that no judge sees are named."""
    setup(tmp_path, provider(), 5)
    write_rollouts(tmp_path / "in.jsonl", 5, rule_scroe=1.0, data_source="gsm8k", label="x")
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "-q")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "rule_scroe" in line]
    assert said == [
        "warning: in.jsonl: column `rule_scroe` is not read. Did you mean `rule_score`? 5 of the first 5 rows have "
        "`rule_scroe` and no `rule_score`."
    ]
    assert "in.jsonl: not read: data_source, label. " in done.stderr
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1", key_env="NO_SUCH_KEY_OF_OURS")
    stopped = referee("score", "in.jsonl", "-o", "other.jsonl")
    assert stopped.returncode == 2
    assert stopped.stderr.index("rule_scroe") < stopped.stderr.index("NO_SUCH_KEY_OF_OURS")


def test_skip_bad_sets_them_aside(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Good lines are scored; bad ones are in a rejects file with what is wrong."""
    setup(tmp_path, provider(), 2)
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.writelines(line + "\n" for line, _ in BAD)
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert [row["line"] for row in rows(tmp_path / "out.jsonl")] == [1, 2]
    rejects = rows(tmp_path / "out.rejects.jsonl")
    assert [reject["line"] for reject in rejects] == [3, 4, 5, 6, 7]
    assert rejects[0]["text"] == BAD[0][0]


def test_existing_output_is_not_overwritten(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A second run says what the choices are."""
    setup(tmp_path, provider(), 2)
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 0
    again = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite").returncode == 0


def test_a_finished_run_resumes_to_itself_without_a_call(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Nothing is missing, nothing is asked, the rows are the same."""
    server = provider()
    setup(tmp_path, server, 30)
    referee("score", "in.jsonl", "-o", "out.jsonl")
    before = (tmp_path / "out.jsonl").read_text()
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jsonl").read_text() == before
    assert server.stats().received == 30
    assert "30 kept" in done.stderr


def test_resume_keeps_the_rows_of_a_server_that_moved(tmp_path: Path, referee: Run, provider: Start) -> None:
    """One that is known by a name is the same one at another port: its rows are kept, its verdicts are in the cache."""
    first, second = provider(), provider()
    setup(tmp_path, first, 6)
    write_config(tmp_path / "referee.toml", first.url, known_as="my judge")
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 0
    write_config(tmp_path / "referee.toml", second.url, known_as="my judge")
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert "6 kept" in done.stderr
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite").returncode == 0
    assert {row["origin"] for row in rows(tmp_path / "out.jsonl")} == {"cache"}
    assert second.stats().received == 0


def test_resume_judges_again_what_was_unscored(tmp_path: Path, referee: Run, provider: Start) -> None:
    """After a provider's bad day, only the rows without a score are asked for again."""
    down = provider(faults={"refusal": 1.0})
    setup(tmp_path, down, 6)
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 3
    assert {row["unscored"] for row in rows(tmp_path / "out.jsonl")} == {"refused"}
    write_config(tmp_path / "referee.toml", provider().url)
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--resume").returncode == 0
    assert [row["score"] for row in rows(tmp_path / "out.jsonl")] == [1, 2, 3, 4, 5, 6]


SCORE = ("score", "in.jsonl", "-o", "out.jsonl")


def start_and_wait(
    tmp_path: Path, server: Server, enough: int, command: tuple[str, ...] = SCORE
) -> subprocess.Popen[str]:
    """Start a run and wait until the provider has answered `enough` requests."""
    child = subprocess.Popen(
        [sys.executable, "-m", "referee.cli.main", *command],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(2000):
        if server.stats().answered >= enough:
            return child
        clock.pause(0.01)
    raise AssertionError("the run did not get going")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_pays_only_for_what_was_in_flight(
    tmp_path: Path, referee: Run, provider: Start, how: signal.Signals
) -> None:
    """Killed or interrupted in the middle; the resumed run completes it and asks for nothing that was kept."""
    server = provider(latency_median=0.05, capacity=10, mode="queue")
    setup(tmp_path, server, 600, "[limits]\nconcurrency = 10")
    child = start_and_wait(tmp_path, server, 200)
    os.kill(child.pid, how)
    _, err = child.communicate(timeout=30)
    assert child.returncode == (-9 if how == signal.SIGKILL else 130), err
    assert "Traceback" not in err
    with contextlib.closing(SqliteCache(tmp_path / ".referee" / "cache.sqlite")) as cache:
        kept, asked = cache.stats()["rows"], server.stats().received
    assert kept > 100, "all but the last moments"
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert [row["line"] for row in found] == list(range(1, 601))
    assert [row["score"] for row in found] == [n % 10 + 1 for n in range(600)]
    assert server.stats().received - asked == 600 - kept
    assert sorted(p.name for p in tmp_path.iterdir() if "out.jsonl" in p.name) == ["out.jsonl"]


def test_after_an_interruption_a_plain_rerun_says_what_to_do(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The partial output of a killed run is not silently thrown away."""
    server = provider(latency_median=0.05)
    setup(tmp_path, server, 2000, "[limits]\nconcurrency = 4")
    child = start_and_wait(tmp_path, server, 20)
    child.kill()
    child.communicate()
    again = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert again.returncode == 2
    assert "--resume" in again.stderr


def test_a_missing_key_is_one_clear_error(tmp_path: Path, referee: Run) -> None:
    """The variable to set is named; nothing was sent."""
    write_rollouts(tmp_path / "in.jsonl", 2)
    write_config(tmp_path / "referee.toml", "https://judge.invalid/v1", key_env="JUDGE_KEY")
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "JUDGE_KEY" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("spec", "word"),
    [({"key": "another"}, "auth"), ({"model": "other"}, "model"), ({"faults": {"quota": 1.0}}, "quota")],
)
def test_a_provider_that_cannot_answer_is_one_clear_error(
    tmp_path: Path, referee: Run, provider: Start, spec: dict[str, object], word: str
) -> None:
    """Wrong key, unknown model, no credit: said once, with the reason, without the key."""
    write_rollouts(tmp_path / "in.jsonl", 50)
    write_config(tmp_path / "referee.toml", provider(**spec).url, key_env="JUDGE_KEY")
    done = referee("-v", "score", "in.jsonl", "-o", "out.jsonl", JUDGE_KEY=KEY)
    assert done.returncode == 2
    assert word in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert KEY not in done.stderr + done.stdout


def test_an_unreachable_host_is_said_within_seconds(tmp_path: Path, referee: Run) -> None:
    """Nobody listens there: the address to check is named."""
    write_rollouts(tmp_path / "in.jsonl", 5)
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "endpoint.url" in done.stderr


def test_an_unknown_setting_is_refused_with_the_nearest(tmp_path: Path, referee: Run) -> None:
    """A misspelt key is not silently ignored."""
    write_rollouts(tmp_path / "in.jsonl", 1)
    (tmp_path / "referee.toml").write_text("[limits]\nconcurency = 5\n")
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "concurrency" in done.stderr


def test_the_key_is_nowhere_in_what_a_run_leaves(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Output, record, cache and log do not hold it."""
    write_rollouts(tmp_path / "in.jsonl", 12)
    write_config(tmp_path / "referee.toml", provider(key=KEY).url, key_env="JUDGE_KEY")
    done = referee("-v", "score", "in.jsonl", "-o", "out.jsonl", JUDGE_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stderr + done.stdout
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("runtime", ["thread", "inline", "processes"])
def test_verbose_logs_every_attempt(tmp_path: Path, referee: Run, provider: Start, runtime: str) -> None:
    """`-v` has a line for each request that was sent, wherever judging runs; without it there is none."""
    server = provider(key=KEY)
    write_rollouts(tmp_path / "in.jsonl", 6)
    write_config(tmp_path / "referee.toml", server.url, key_env="JUDGE_KEY")
    config = tmp_path / "referee.toml"
    config.write_text(f'runtime = "{runtime}"\n{config.read_text()}')
    done = referee("-v", "score", "in.jsonl", "-o", "out.jsonl", JUDGE_KEY=KEY)
    assert done.stderr.count(": attempt 1: answered, ") == server.stats().received == 6, done.stderr
    assert KEY not in done.stderr
    assert "quality" not in done.stderr
    again = referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite", JUDGE_KEY=KEY)
    assert "attempt" not in again.stderr
