"""A rubric's pass rates while it runs: with a ledger and without, of one judge and of several, as from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from referee.config import load
from referee.ledger import read
from referee.ledger.metrics import metrics
from referee.records import Criterion, Sample
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport

ENDPOINT = {"url": "http://sim.test/v1", "model": "m", "key_env": ""}
CRITERIA = (
    Criterion(text="Mentions two", name="two", check="contains", parameters="2"),
    Criterion(text="Mentions three", name="three", check="contains", parameters="3", true_is="bad"),
    Criterion(text="Is about apples", name="judged"),
)
SAMPLES = [Sample(prompt="p", response=f"apples {n}", rubric=CRITERIA) for n in range(4)]


def rates(found: dict[str, float]) -> dict[str, float]:
    return {name: rate for name, rate in found.items() if name.endswith("/pass_rate")}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("judge", "of"),
    [
        ([{"kind": "rubric"}], ""),
        ([{"kind": "rubric", "name": "r"}, {"kind": "yes_no", "name": "s"}], "judge/r/"),
    ],
)
def test_pass_rates_live_and_from_the_ledger(tmp_path: Path, judge: list[Any], of: str, kept: bool) -> None:
    """Each criterion by name, under its judge where there are several."""
    ledger = {"dir": str(tmp_path) if kept else ""}
    config = load({"endpoint": ENDPOINT, "judge": judge, "cache": {"path": ""}, "ledger": ledger, "runtime": "inline"})
    with Referee(config, worker_with(lambda: SimTransport(Provider(ProviderSpec(), 1)))) as referee:
        rewards, live = referee.score(SAMPLES), referee.metrics()
    assert all(reward.scored for reward in rewards)
    found = rates(live)
    assert set(found) == {f"{of}criterion/{name}/pass_rate" for name in ("two", "three", "judged")}
    assert (found[f"{of}criterion/two/pass_rate"], found[f"{of}criterion/three/pass_rate"]) == (0.25, 0.75)
    if kept:
        assert rates(metrics(read(tmp_path))) == found
