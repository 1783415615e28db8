"""What every trainer's adapter promises. A test class inherits these and says how its adapter is called.

The judge is the simulated provider: an answer that holds [[quality=7]] gets a 7 of 10, one that holds [[quality=99]] an
unusable verdict, so that it stays unscored however often it is asked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from referee.errors import EndpointClosed, RefereeError
from referee.sim import ProviderSpec, start_server_process
from referee.trainers.shared import CONFIG_VARIABLE, close_all

VALUE = -0.25
"""What an unscored answer gets in adapters that must give a number. No verdict gives it, nor any mean here."""
UNSCORED = "[[quality=99]]"
NOWHERE = "http://127.0.0.1:9/v1"
"""Nobody listens there."""
PATIENCE = 50.0
"""Seconds for threads on a busy machine; nothing is asserted about time."""

Outcome = float | None
"""A number for the trainer, or None for the framework's own signal that there is none."""
Write = Callable[..., Path]


@pytest.fixture(scope="module")
def sim_url() -> Iterator[str]:
    """One simulated provider for all adapters of a module."""
    with start_server_process(ProviderSpec(), seed=1) as server:
        yield server.url


@pytest.fixture(scope="module")
def broke_url() -> Iterator[str]:
    """A provider that says the account is empty, to everybody."""
    with start_server_process(ProviderSpec(faults={"quota": 1.0}), seed=1) as server:
        yield server.url


@pytest.fixture(scope="module")
def down_url() -> Iterator[str]:
    """A provider that is overloaded for ever."""
    with start_server_process(ProviderSpec(faults={"http_503": 1.0}), seed=1) as server:
        yield server.url


@pytest.fixture
def write_config(tmp_path: Path, sim_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a referee.toml that REFEREE_CONFIG names; closes what was opened after the test."""
    count = 0

    def write(missing: dict[str, Any], url: str = sim_url, **sections: dict[str, Any]) -> Path:
        nonlocal count
        count += 1
        path = tmp_path / f"referee-{count}.toml"
        all_sections = {
            "endpoint": {"url": url, "model": "simulated", "key_env": ""},
            "judge": {"ask_again": 0},
            "cache": {"path": ""},
            "limits": {"deadline": 60.0},
            "missing": missing,
            **sections,
        }
        lines = []
        for section, settings in all_sections.items():
            lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
        path.write_text("\n".join(lines) + "\n")
        monkeypatch.setenv(CONFIG_VARIABLE, str(path))
        return path

    yield write
    close_all()


def answers(*marks: int) -> list[str]:
    """Answers whose right score the judge can read; no two alike."""
    return [f"[[quality={mark}]] answer {n}" for n, mark in enumerate(marks)]


def fair(*marks: int) -> list[float]:
    """The rewards they deserve."""
    return [(mark - 1) / 9 for mark in marks]


class AdapterContract:
    """Inherit, and give `rewards`. Adapters that must give a number set `missing` to {"policy": "value", …}."""

    missing: dict[str, Any] = {"policy": "abstain"}  # noqa: RUF012
    fills_with_mean = False
    """True where an unscored answer shows its siblings' mean and is masked or centered away."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        """Have the adapter judge the answers to one prompt, as its framework would, from a synchronous caller."""
        raise NotImplementedError

    def test_order_is_the_callers(self, write_config: Write) -> None:
        """Every answer gets its own reward, in its own place."""
        marks = [3, 9, 1, 10, 5, 2, 8, 4, 7, 6, 10, 1]
        assert self.rewards(write_config(self.missing), answers(*marks)) == pytest.approx(fair(*marks))

    def test_unscored_is_never_a_zero_by_accident(self, write_config: Write) -> None:
        """An answer without a verdict is missing, or has the number the user chose; its siblings keep theirs."""
        texts = [*answers(10, 4), UNSCORED + " x", *answers(7)]
        found = self.rewards(write_config(self.missing), texts)
        number = self.missing.get("value")
        middle = sum(fair(10, 4, 7)) / 3
        assert found[2] == (pytest.approx(middle) if self.fills_with_mean else number)
        assert [found[0], found[1], found[3]] == pytest.approx(fair(10, 4, 7))

    def test_the_lowest_score_is_a_score(self, write_config: Write) -> None:
        """A true 0.0 stays one: it is not taken for a missing reward."""
        assert self.rewards(write_config(self.missing), answers(1, 10)) == [0.0, 1.0]

    def test_an_outage_does_not_stop_the_trainer(self, write_config: Write, down_url: str) -> None:
        """Nobody judges: no exception but the framework's own signal, no invented number, step after step."""
        config = write_config(self.missing, down_url, limits={"deadline": 0.3})
        number = 0.0 if self.fills_with_mean else self.missing.get("value")
        for _ in range(3):
            assert self.rewards(config, answers(5, 6)) == [number, number]

    def test_a_judge_that_can_never_answer_stops_the_trainer(self, write_config: Write, broke_url: str) -> None:
        """An empty account, a wrong key or address, before any verdict: the one clear error, in the first step."""
        config = write_config({**self.missing, "abort_above": 1.0}, broke_url)
        for _ in range(2):
            with pytest.raises(EndpointClosed, match="quota"):
                self.rewards(config, answers(5, 6))

    def test_policy_raise_raises(self, write_config: Write) -> None:
        """Then, and only then, an unscored answer is an error of ours."""
        path = write_config({"policy": "raise"})
        assert self.rewards(path, answers(4)) == pytest.approx(fair(4))
        with pytest.raises(RefereeError):
            self.rewards_or_error(path, [UNSCORED + " y"])

    def test_a_second_step_works_as_the_first(self, write_config: Write) -> None:
        """Asynchronous adapters meet a new event loop each step."""
        path = write_config(self.missing)
        for step in range(3):
            texts = [f"{text} of step {step}" for text in answers(2, 9)]
            assert self.rewards(path, texts) == pytest.approx(fair(2, 9))

    def test_inside_a_running_loop(self, write_config: Write) -> None:
        """Called from a thread of a framework whose own loop is running, nothing is assumed about that loop."""
        path = write_config(self.missing)

        async def main() -> list[Outcome]:
            return await asyncio.to_thread(self.rewards, path, answers(3, 8))

        assert asyncio.run(main()) == pytest.approx(fair(3, 8))

    def test_from_many_threads(self, write_config: Write) -> None:
        """Eight threads at once get what is theirs."""
        path = write_config(self.missing)
        found: dict[int, list[Outcome]] = {}

        def work(number: int) -> None:
            found[number] = self.rewards(path, [f"{text} in thread {number}" for text in answers(number, number + 1)])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(found) == list(range(1, 9))
        for number, rewards in found.items():
            assert rewards == pytest.approx(fair(number, number + 1))

    def rewards_or_error(self, config: Path, texts: list[str]) -> list[Outcome]:
        """The same, where a class turns a signal by exception into None in `rewards`: without that."""
        return self.rewards(config, texts)


class GroupAdapterContract(AdapterContract):
    """What those promise as well that are shown all answers to a prompt at once."""

    @pytest.mark.parametrize(
        "judge",
        [
            {"kind": "listwise", "ranks": True, "permutations": 2},
            {"kind": "pairwise", "schedule": "all", "strength": "win_rate"},
        ],
        ids=["listwise", "pairwise"],
    )
    def test_judges_of_groups_are_shown_them_whole(self, write_config: Write, judge: dict[str, Any]) -> None:
        """Each answer gets the share of all others that it beats, in its own place."""
        path = write_config(self.missing, judge=judge)
        assert self.rewards(path, answers(3, 9, 1, 10, 5)) == pytest.approx([0.25, 0.75, 0.0, 1.0, 0.5])
