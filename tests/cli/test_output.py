"""What `referee score` reads and writes: no file of the user's is lost, and every refusal is one line."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.cli.conftest import Run, Start, rows, write_config, write_rollouts
from tests.cli.test_score import start_and_wait

from referee.cli import rows as row_files
from referee.cli.output import claimed
from referee.cli.rows import Row, RowWriter, consolidate, joining, partial, read_rows
from referee.errors import ConfigError
from referee.sim.billing import PromptCache

NOWHERE = "http://127.0.0.1:9/v1"


def setup(tmp_path: Path, url: str, count: int = 4, text: str = "") -> None:
    write_rollouts(tmp_path / "in.jsonl", count)
    write_config(tmp_path / "referee.toml", url, text)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """A refusal is one message and no traceback."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("how", ["--overwrite", "--resume", "-q"])
@pytest.mark.parametrize("name", ["in.jsonl", "./in.jsonl", "link.jsonl", "hard.jsonl"])
def test_the_output_may_not_be_the_input(tmp_path: Path, referee: Run, how: str, name: str) -> None:
    """Whatever name it goes by and whatever flag is given, the rollouts stay as they are."""
    setup(tmp_path, NOWHERE)
    (tmp_path / "link.jsonl").symlink_to("in.jsonl")
    os.link(tmp_path / "in.jsonl", tmp_path / "hard.jsonl")
    before = (tmp_path / "in.jsonl").read_bytes()
    refused(referee("score", "in.jsonl", "-o", name, how), "would replace the rollouts")
    assert (tmp_path / "in.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["x.jsonl.partial", "x.rejects.jsonl", "x.jsonl.joining"])
def test_files_beside_the_output_may_not_be_the_input_either(tmp_path: Path, referee: Run, name: str) -> None:
    """Rejects, the file of a run in progress and the joined one are written too."""
    setup(tmp_path, NOWHERE)
    (tmp_path / "in.jsonl").rename(tmp_path / name)
    with (tmp_path / name).open("a") as stream:
        stream.write("{\n")
    before = (tmp_path / name).read_bytes()
    refused(referee("score", name, "-o", "x.jsonl", "--overwrite", "--skip-bad"), "would replace the rollouts")
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "line", "word"),
    [
        ("[judge]\nknd = 1", "", "knd"),
        ('[judge]\nprompt_file = "none.txt"', "", "none.txt"),
        ("", '{"prompt": 1}', "line 5"),
    ],
)
def test_overwrite_keeps_the_old_rewards_until_there_are_new_ones(
    tmp_path: Path, referee: Run, settings: str, line: str, word: str
) -> None:
    """A wrong setting or a bad line stops the run; what was there before is still there."""
    setup(tmp_path, NOWHERE, text=settings)
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.write(line)
    (tmp_path / "out.jsonl").write_text('{"line":1,"id":"a","reward":1.0}\n')
    (tmp_path / "out.jsonl.partial").write_text('{"line":1,"id":"a","reward":0.5}\n')
    refused(referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite"), word)
    assert [row["reward"] for row in rows(tmp_path / "out.jsonl")] == [1.0]
    assert [row["reward"] for row in rows(tmp_path / "out.jsonl.partial")] == [0.5]


def test_overwriting_without_a_judge_keeps_the_old_rewards(tmp_path: Path, referee: Run) -> None:
    """Nobody answers: no new reward, so the old ones stay, and only they."""
    setup(tmp_path, NOWHERE)
    old = '{"line":1,"id":"a","reward":1.0}\n'
    (tmp_path / "out.jsonl").write_text(old)
    refused(referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite"), "endpoint.url")
    assert (tmp_path / "out.jsonl").read_text() == old
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_a_stopped_overwrite_does_not_mix_two_runs(tmp_path: Path) -> None:
    """Old and new rows stay in files of their own until somebody resumes."""
    out = tmp_path / "r.jsonl"
    out.write_text('{"line":1,"id":"a","reward":1.0}\n{"line":2,"id":"b","reward":1.0}\n')
    writer = RowWriter(str(out), None, fresh=True)
    writer.write([Row(line=1, id="a", reward=0.5)])
    assert writer.abandon() == partial(out)
    assert [row.reward for row in read_rows(out)] == [1.0, 1.0]
    assert [row.reward for row in read_rows(partial(out))] == [0.5]


@pytest.mark.parametrize("flag", ["--overwrite", "--resume", "-q"])
def test_a_folder_is_no_output(tmp_path: Path, referee: Run, flag: str) -> None:
    """Said in one line; the folder is not touched."""
    setup(tmp_path, NOWHERE)
    (tmp_path / "there").mkdir()
    refused(referee("score", "in.jsonl", "-o", "there", flag), "is a folder")
    assert (tmp_path / "there").is_dir()


@pytest.mark.parametrize("flag", ["--overwrite", "--resume", "-q"])
def test_what_is_no_regular_file_is_no_output(tmp_path: Path, referee: Run, flag: str) -> None:
    """A pipe or a device would be replaced by a file."""
    setup(tmp_path, NOWHERE)
    os.mkfifo(tmp_path / "pipe")  # no device: a mistake here must not cost the machine one
    refused(referee("score", "in.jsonl", "-o", "pipe", flag), "no regular file")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("flag", ["--resume", "-q"])
def test_a_file_of_something_else_is_not_taken_for_rewards(tmp_path: Path, referee: Run, flag: str) -> None:
    """--resume with the wrong name must not replace that file."""
    setup(tmp_path, NOWHERE)
    write_rollouts(tmp_path / "other.jsonl", 3)
    before = (tmp_path / "other.jsonl").read_bytes()
    refused(referee("score", "in.jsonl", "-o", "other.jsonl", flag), "no file of rewards")
    assert (tmp_path / "other.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [("", {"key_env": "JUDGE_KEY"}), ('[judge]\nprompt_file = "none.txt"', {}), ("", {"key_file": "none"})],
)
def test_a_wrong_setting_leaves_no_output(
    tmp_path: Path, referee: Run, settings: str, endpoint: dict[str, str]
) -> None:
    """The corrected command is the same command; nothing has to be cleared away first."""
    write_rollouts(tmp_path / "in.jsonl", 2)
    write_config(tmp_path / "referee.toml", "https://judge.invalid/v1", settings, **endpoint)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    refused(done)
    assert "stopped" not in done.stderr
    assert "resume" not in done.stderr
    assert not list(tmp_path.glob("out.jsonl*"))


def test_resume_judges_again_what_another_prompt_scored(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A template edited under the same name is another judge; moved and unchanged it is the same."""
    server = provider()
    setup(tmp_path, server.url, 6, '[judge]\nprompt_file = "prompt.txt"')
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Prompt: {{prompt}}\nAnswer: {{response}}\nHow good is it?")
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 0
    assert "6 kept" in referee("score", "in.jsonl", "-o", "out.jsonl", "--resume").stderr
    prompt.write_text("Prompt: {{prompt}}\nAnswer: {{response}}\nHow kind is it?")
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    assert "kept" not in done.stderr
    assert server.stats().received == 12


class Full(io.BytesIO):
    """A file on a disk that has room for `room` bytes; the rest waits in a buffer that never gets out."""

    def __init__(self, path: Path, room: int) -> None:
        super().__init__()
        self._path, self._room = path, room
        path.touch()

    def flush(self) -> None:
        """Write what fits, and complain about the rest."""
        data = self.getvalue()
        self._path.write_bytes(data[: self._room])
        if len(data) > self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Flushes, as closing does, once."""
        room, self._room = self._room, sys.maxsize
        if room < sys.maxsize and len(self.getvalue()) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_what_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing says which file; giving up says nothing more, leaves no half-joined file, and can be resumed."""
    out = tmp_path / "r.jsonl"
    out.write_text('{"line":9,"id":"z","reward":1.0}\n')

    def full(path: Path) -> BinaryIO:
        return Full(path, 50)

    with monkeypatch.context() as patch:
        patch.setattr(row_files, "create", full)
        writer = RowWriter(str(out), None)
        writer.write([Row(line=1, id="a", reward=0.5)])
        with pytest.raises(OSError, match=r"r\.jsonl"):
            writer.write([Row(line=2, id="b", reward=0.5), Row(line=3, id="c", reward=0.5)])
        assert writer.abandon() == partial(out)
        with pytest.raises(OSError, match=r"No space.*r\.jsonl"):
            consolidate(out)
        assert not joining(out).exists()
    consolidate(out)
    assert [row.line for row in read_rows(out)] == [1, 9]


def test_one_output_has_one_writer(tmp_path: Path) -> None:
    """A second run is refused at once; the lock goes with its holder, and a killed one's holds nobody back."""
    out = str(tmp_path / "out.jsonl")
    with claimed(out), pytest.raises(ConfigError, match="another run"), claimed(out):
        pass
    assert not list(tmp_path.iterdir())
    (tmp_path / "out.jsonl.lock").touch()
    with claimed(out):
        pass
    assert not list(tmp_path.iterdir())


def test_two_runs_do_not_write_one_output(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The second one leaves the first alone, whatever it is told to do with the output."""
    server = provider(latency_median=0.05, capacity=10, mode="queue")
    setup(tmp_path, server.url, 6000, "[limits]\nconcurrency = 4")
    child = start_and_wait(tmp_path, server, 8)
    try:
        for flag in ("--resume", "--overwrite"):
            refused(referee("score", "in.jsonl", "-o", "out.jsonl", flag), "another run")
        assert child.poll() is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        child.communicate()


def test_an_interrupted_run_without_a_cache_keeps_what_it_has(tmp_path: Path, referee: Run, provider: Start) -> None:
    """What was judged is in the output, with gaps, and --resume pays for the rest only."""
    server = provider(latency_median=0.05, capacity=10, mode="queue")
    setup(tmp_path, server.url, 900, "[limits]\nconcurrency = 10\n[cache]\nenabled = false")
    child = start_and_wait(tmp_path, server, 450)
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    kept, paid = rows(tmp_path / "out.jsonl"), server.stats().received
    assert len(kept) >= 250
    assert f"stopped: {len(kept)} of 900 rewards are in out.jsonl" in err
    assert "cache" not in err
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} kept" in done.stderr
    assert [row["score"] for row in rows(tmp_path / "out.jsonl")] == [n % 10 + 1 for n in range(900)]
    assert server.stats().received == paid + 900 - len(kept)


def test_a_cost_that_is_not_known_is_not_shown_as_nothing(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Without prices the summary says so; with them it shows dollars."""
    server = provider()
    setup(tmp_path, server.url)
    plain = referee("score", "in.jsonl", "-o", "a.jsonl")
    assert "cost unknown" in plain.stderr
    assert "$" not in plain.stderr
    write_config(tmp_path / "referee.toml", server.url, price_in=1000.0, price_out=1000.0)
    assert "$0." in referee("score", "in.jsonl", "-o", "b.jsonl").stderr


def test_the_share_of_cached_tokens_is_shown(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Of a provider that reports its prompt cache; of another nothing is said."""
    server = provider(prompt_cache=PromptCache(min_tokens=64, block=16))
    setup(tmp_path, server.url)
    referee("score", "in.jsonl", "-o", "a.jsonl")
    write_config(tmp_path / "referee.toml", server.url, '[cache]\npath = ""')
    assert re.search(
        r"tokens in \(\d+% from the provider's prompt cache\)", referee("score", "in.jsonl", "-o", "b.jsonl").stderr
    )
    setup(tmp_path, provider().url)
    assert "prompt cache" not in referee("score", "in.jsonl", "-o", "c.jsonl").stderr


def test_a_template_lies_beside_its_configuration(tmp_path: Path, referee: Run, provider: Start) -> None:
    """`-c sub/r.toml` finds the template in `sub`, byte order mark and all; if it is missing, the error says where."""
    server = provider()
    (tmp_path / "sub").mkdir()
    write_rollouts(tmp_path / "in.jsonl", 2)
    write_config(tmp_path / "sub/r.toml", server.url, '[judge]\nprompt_file = "t.txt"')
    command = ("score", "in.jsonl", "-c", "sub/r.toml", "-o", "out.jsonl")
    refused(referee(*command), str(tmp_path / "sub" / "t.txt"), "No such file")
    text = "[system]\nYou judge.\n[user]\n{{prompt}}\n{{response}}\n"
    (tmp_path / "sub/t.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    done = referee(*command)
    assert done.returncode == 0, done.stderr


def test_overwriting_begins_a_new_record(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The record beside the output is of the run that made it."""
    setup(tmp_path, provider().url)
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 0
    [first] = (tmp_path / "out.run").iterdir()
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite").returncode == 0
    [second] = (tmp_path / "out.run").iterdir()
    assert first != second


def test_a_run_without_scores_does_not_end_well(tmp_path: Path, referee: Run, provider: Start) -> None:
    """`referee score … && train` must not train on nothing: the output is complete, the exit status is 3."""
    setup(tmp_path, provider(faults={"refusal": 1.0}).url)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 3, done.stderr
    assert "4 of 4 rollouts have no score" in done.stderr
    assert len(rows(tmp_path / "out.jsonl")) == 4


def test_comparing_needs_something_to_compare_with(tmp_path: Path, referee: Run) -> None:
    """A reference judge and no reference anywhere: said before anything is spent."""
    setup(tmp_path, NOWHERE, text='[judge]\nkind = "reference"')
    refused(referee("score", "in.jsonl", "-o", "out.jsonl"), "no rollout has a `reference`", "Nothing was spent")


def test_a_rubric_judge_needs_criteria(tmp_path: Path, referee: Run) -> None:
    """No rubric in any row and no criteria of the judge's own: said at the start, not in a file without a score."""
    setup(tmp_path, NOWHERE, text='[judge]\nkind = "rubric"')
    refused(referee("score", "in.jsonl", "-o", "out.jsonl"), "no rollout has a `rubric`", "Nothing was spent")
    two = '[[judge]]\nname = "a"\n[[judge]]\nname = "b"\nkind = "rubric"\noptional = true'
    setup(tmp_path, NOWHERE, text=two)
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--dry-run").returncode == 0


def test_a_link_leads_to_the_output(tmp_path: Path, referee: Run, provider: Start) -> None:
    """`-o link.jsonl` writes the file on the large disk that the link names; the link stays one."""
    setup(tmp_path, provider().url)
    (tmp_path / "large").mkdir()
    (tmp_path / "link.jsonl").symlink_to("large/out.jsonl")
    for flag in ("-q", "--resume", "--overwrite"):
        done = referee("score", "in.jsonl", "-o", "link.jsonl", flag)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "link.jsonl").is_symlink()
        assert len(rows(tmp_path / "large" / "out.jsonl")) == 4
