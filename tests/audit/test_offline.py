"""The audit of a finished run: the record gives the alarms that a live watch would have given."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.audit.ledgers import lines_of_steps, verdict, write
from tests.signals.runs import Answer, nothing, step_of
from typer.testing import CliRunner

from referee.audit.offline import TimeOrder, audit
from referee.cli.main import app
from referee.ledger import AuditLine, JudgeLine, Line, RunLine, VerdictLine
from referee.signals import Observation, Watch


def praised(rng: random.Random, step: int, answer: Answer) -> None:
    """A closing phrase that is paid and spreads."""
    if rng.random() < min(0.9, 0.02 + max(0, step - 3) / 20):
        answer["words"] += ["hope", "this", "helps"]
        answer["value"] += 0.4


def longer(rng: random.Random, step: int, answer: Answer) -> None:
    """Length that is paid and grows."""
    count = int(rng.uniform(20, 60) * (1 + step / 20))
    answer["words"] = rng.choices(answer["words"], k=count)
    answer["value"] += 0.008 * count - 0.3


def steps_of(make: object = praised, steps: int = 20) -> list[list[Observation]]:
    rng = random.Random(3)
    return [step_of(rng, step, make) for step in range(steps)]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def hacked() -> list[list[Observation]]:
    """A run with a phrase that is paid."""
    return steps_of()


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", *map(str, arguments)])
    return (2, str(done.exception)) if done.exception and done.exit_code == 1 else (done.exit_code, done.output)


def test_the_record_gives_the_alarms_of_the_live_run(hacked: list[list[Observation]], tmp_path: Path) -> None:
    """Same signals at the same steps, though lines of a batch come in any order, and the audit had seen later ones."""
    live = Watch()
    told = [alarm for samples in hacked for alarm in live.observe(samples) if not alarm.over]
    said = [(alarm.signal, alarm.step) for alarm in told]
    lines = lines_of_steps(hacked)
    lines.insert(140, AuditLine(what="canary", wrong=True, value=0.0, step=99))
    found = audit(TimeOrder(write(tmp_path / "ledger-20260101T000000Z-1.jsonl", lines)))
    assert found.alarms
    assert {(one.signal, one.step) for one in found.alarms} <= set(said)
    grown = {one.signal: one.critical_step for one in found.alarms if one.critical_step is not None}
    assert grown
    assert set(grown.items()) <= {(one.signal, one.step) for one in told if one.level == "critical"}
    assert (found.samples, found.steps, found.last_step, found.texts) == (20 * 64, 20, 19, True)


def test_several_processes_and_a_torn_file_are_one_run(hacked: list[list[Observation]], tmp_path: Path) -> None:
    """Files side by side are read in the order of time; a line that is cut is counted and skipped."""
    for process in range(2):
        part = [samples[process * 32 : (process + 1) * 32] for samples in hacked]
        named = [[replace(one, batch=f"{process}-{one.batch}") for one in samples] for samples in part]
        path = write(tmp_path / f"ledger-20260101T000000Z-{process + 1}.jsonl", lines_of_steps(named))
    with path.open("ab") as stream:
        stream.write(b'{"type":"verdict","batch":"torn')
    lines = TimeOrder(tmp_path)
    found = audit(lines)
    assert {one.signal for one in found.alarms} == {"phrase"}
    assert found.samples == 20 * 64
    assert lines.lost == 1
    status, output = invoke(tmp_path)
    assert status == 4
    assert "1 line could not be read" in output


def test_without_texts_length_is_still_watched(tmp_path: Path) -> None:
    """From the rewards' lengths; signals of texts say why they say nothing."""
    write(tmp_path / "ledger-20260101T000000Z-1.jsonl", lines_of_steps(steps_of(longer), content=False))
    status, output = invoke(tmp_path)
    assert status == 4
    assert "length" in output
    assert "Longer answers" in output
    assert output.count("no texts in the record") == 4


def test_a_clean_run_ends_with_status_0(tmp_path: Path) -> None:
    """And says what was looked at."""
    write(tmp_path / "ledger-20260101T000000Z-1.jsonl", lines_of_steps(steps_of(nothing, 10)))
    status, output = invoke(tmp_path)
    assert status == 0
    assert "No alarm." in output
    assert "640 judged samples, 10 steps (0 to 9)" in " ".join(output.split())
    assert max(map(len, output.splitlines())) <= 80


def test_json_has_the_documented_form(hacked: list[list[Observation]], tmp_path: Path) -> None:
    """Alarms with their evidence, and the state of every signal."""
    write(tmp_path / "ledger-20260101T000000Z-1.jsonl", lines_of_steps(hacked))
    status, output = invoke(tmp_path, "--json")
    found = json.loads(output)
    assert status == 4
    assert set(found) == {"version", "samples", "steps", "alarms", "measures", "signals"}
    names = {"signal", "level", "step", "critical_step", "over", "sentence", "evidence", "samples", "advice"}
    assert names == set(found["alarms"][0])
    assert found["signals"]["phrase"]["state"] == "alarm"
    assert found["signals"]["shadow"]["state"] == "not enough"


def test_text_of_samples_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """Escape sequences of answers are shown as such; no line is wider than a terminal."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        praised(rng, step, answer)
        answer["words"] = ["\x1b[2Jred", *answer["words"]]

    write(tmp_path / "ledger-20260101T000000Z-1.jsonl", lines_of_steps(steps_of(make)))
    status, output = invoke(tmp_path)
    assert status == 4
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 80


def test_an_old_ledger_without_steps_and_batches_is_read_in_its_order(hacked: list[list[Observation]]) -> None:
    """Verdicts alone are enough."""
    lines: list[Line] = [
        replace(line, step=None, batch="") for line in lines_of_steps(hacked) if line.__struct_config__.tag == "verdict"
    ]
    found = audit(lines)
    assert found.steps == 0
    assert {one.signal for one in found.alarms} == {"phrase"}


def test_a_new_configuration_is_a_change_on_purpose() -> None:
    """Another model under other settings is no alarm; under the same it is."""
    first, second = steps_of(nothing, 12)[:6], steps_of(nothing, 12)[6:]
    other = [[replace(one, model="new") for one in samples] for samples in second]
    assert audit(lines_of_steps(first) + lines_of_steps(other, settings="b")).alarms == []
    assert [one.signal for one in audit(lines_of_steps(first) + lines_of_steps(other)).alarms] == ["judge_changed"]


def test_gates_and_cancelled_samples_are_not_looked_at() -> None:
    """They are no opinion of the judge."""
    one = steps_of(nothing, 1)[0][0]
    lines = [
        verdict(one, 1.0, origin="gate"),
        verdict(one, 1.0, value=None, unscored="cancelled"),
        verdict(one, 1.0, value=None, unscored="timeout"),
    ]
    assert audit(lines).samples == 1


def test_criteria_and_questions_of_the_audit_are_read_back() -> None:
    """Parts of rubrics, of a lone judge and of one among several, and what a live audit has asked."""
    seen = steps_of(nothing, 8)
    parts = [
        {"name": "a", "text": "Mentions the dose", "true_is": "good", "value": 1.0, "unscored": ""},
        {"name": "b", "text": "The dose is wrong", "true_is": "bad", "value": 0.0, "unscored": ""},
    ]
    lone = [verdict(one, 1.0, how="rubric", parts=parts) for samples in seen for one in samples]
    several: list[Line] = []
    for samples in seen:
        for one in samples:
            several.append(JudgeLine(judge="r", batch=one.batch, index=one.index, how="rubric", parts=parts))
            several.append(verdict(one, 1.0, how="terms"))
    asked = [AuditLine(what="canary", name="colon", wrong=True, value=1.0, step=n) for n in range(4)]
    for lines in ([RunLine(digest="a"), *asked, *lone], [*asked, *several]):
        found = audit(lines)
        assert found.signals["criteria"].looked_at == 8 * 64
        assert [(one.signal, one.level) for one in found.alarms] == [("canaries", "warning")]


def test_nothing_to_audit_is_an_error_that_says_so(tmp_path: Path) -> None:
    """An empty folder, a file that is something else, a ledger without samples."""
    assert "holds no ledger" in invoke(tmp_path)[1]
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    assert "neither a ledger nor rewards" in invoke(other)[1]
    write(tmp_path / "ledger-20260101T000000Z-1.jsonl", [RunLine(digest="a")])
    assert "There is nothing to audit" in invoke(tmp_path)[1]


def test_the_record_beside_rewards_is_read_for_them(hacked: list[list[Observation]], tmp_path: Path) -> None:
    """Rewards hold no texts, so by themselves they would show nothing of a phrase."""
    said = [line for line in lines_of_steps(hacked) if isinstance(line, VerdictLine)][:64]
    rows = [
        {"line": n, "id": one.id, "group": one.group, "key": one.key, "reward": 0.5, "value": 0.5, "origin": "call"}
        for n, one in enumerate(said, 1)
    ]
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert invoke(path)[0] == 0
    write(tmp_path / "out.run" / "ledger-20260101T000000Z-1.jsonl", lines_of_steps(hacked))
    status, output = invoke(path)
    assert status == 4
    assert "out.run: 1,280 judged samples" in " ".join(output.split())
    table = tmp_path / "out.csv"  # its record would be out.csv.run
    table.write_text("line,id,reward,value,origin\n1,a,0.5,0.5,call\n")
    assert invoke(table)[0] == 0
    path.write_text(json.dumps(rows[0] | {"key": "of another judge"}) + "\n")
    status, output = invoke(path)
    assert status == 0
    assert "does not hold all of these rewards" in " ".join(output.split())


def test_the_folder_one_is_in_may_be_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`referee audit .`"""
    write(tmp_path / "ledger-20260101T000000Z-1.jsonl", [RunLine(digest="a")])
    monkeypatch.chdir(tmp_path)
    assert "There is nothing to audit" in invoke(".")[1]


def test_rewards_of_referee_score_are_read_too(hacked: list[list[Observation]], tmp_path: Path) -> None:
    """Rows with prompt and response, whatever else they hold."""
    rows = [
        {
            "line": number + 1,
            "id": str(number),
            "group": one.prompt_key,
            "step": one.step,
            "reward": one.value,
            "value": one.value,
            "score": one.value,
            "origin": "call",
            "response": one.response,
        }
        for number, one in enumerate(one for samples in hacked for one in samples)
    ]
    path = tmp_path / "rewards.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, output = invoke(path)
    assert status == 4
    assert "hope this helps" in output
