"""/metrics: names that exist and are documented."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.harness import sample, samples, serving

from referee.ledger.comparisons import Compared
from referee.ledger.metrics import Tally
from referee.server.prometheus import COUNTERS, GAUGES, REASONS, referee_families
from referee.sim import ProviderSpec

DOCS = Path(__file__).parent.parent.parent / "docs"


JUDGES = [{"name": "quality", "weight": 0.7}, {"name": "a/b", "kind": "yes_no", "weight": 0.3}]
CRITERION = "referee_criterion_pass_rate"
"""Only where a judge is a rubric."""
HISTOGRAMS = ("referee_latency_seconds", "referee_queue_seconds", "referee_score")
PARTS = ("_bucket", "_count", "_sum")


def is_histogram(name: str) -> bool:
    """Whether a sample is one of a histogram's, and not of a metric with a longer name."""
    return any(name == histogram + part for histogram in HISTOGRAMS for part in PARTS)


AUDIT = ("referee_audit_alarm", "referee_audit_measure")
"""Only where the audit has enough to measure, or an alarm."""


def exported(
    warm: bool = True, until: str = "", **sections: Any
) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """What /metrics shows, by name and labels, after a batch of three samples if `warm`, once `until` is
    in it."""

    async def main() -> str:
        async with serving(**sections) as served:
            if warm:
                await served.post("/v1/score", {"samples": samples(3)})
            answer = await served.get("/metrics")
            for _ in range(500):  # lines are written a turn of the judging loop after the answer
                if until in answer.text:
                    break
                await asyncio.sleep(0.01)
                answer = await served.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            return answer.text

    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(asyncio.run(main())):
        assert family.documentation, family.name
        for item in family.samples:
            found.setdefault(item.name, {})[tuple(sorted(item.labels.items()))] = item.value
    return found


def test_what_disks_do_not_take_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verdict that the cache file refuses and every line that the ledger loses; rewards are there."""
    assert not set(exported()["referee_ledger_lost_lines_total"].values()) - {0}
    (tmp_path / "not-a-cache.txt").write_text("a file of somebody's")
    monkeypatch.setattr("referee.ledger.writer.Ledger._put", lambda self, data, lines: self._lose(lines, "full"))
    lost = {"cache": {"path": str(tmp_path / "not-a-cache.txt")}, "ledger": {"dir": str(tmp_path / "run")}}
    found = exported(until="referee_ledger_lost_lines_total 7.0", **lost)
    assert found["referee_scored_total"][()] == found["referee_cache_lost_verdicts_total"][()] == 3
    assert found["referee_ledger_lost_lines_total"][()] >= 3 + 3


def test_the_numbers_are_the_referees() -> None:
    """Counts of a batch show up under their names."""
    found = exported()
    assert found["referee_samples_total"][()] == 3
    assert found["referee_judge_requests_total"][()] == 3
    assert found["referee_up"][()] == 1
    assert found["referee_http_answers_total"][("route", "/v1/score"), ("status", "200")] == 1
    assert found["referee_unscored_total"][(("reason", "timeout"),)] == 0


def test_the_first_fault_of_a_path_is_an_increase() -> None:
    """Its count is there, as 0, before it: Prometheus sees no increase in a series that begins with 1."""
    found = exported(warm=False)["referee_http_answers_total"]
    for route in ("/v1/score", "/v1/tickets/{id}", "/get_reward", "other"):
        assert found[("route", route), ("status", "500")] == 0


def test_histograms_are_ones_that_prometheus_takes() -> None:
    """Cumulative buckets that end in +Inf and agree with the count; the sum is that of the verdicts."""
    found = exported()
    for name in HISTOGRAMS:
        buckets = {dict(labels)["le"]: count for labels, count in found[f"{name}_bucket"].items()}
        counts = [count for _, count in sorted(buckets.items(), key=lambda item: float(item[0]))]
        assert counts == sorted(counts)
        assert counts[-1] == buckets["+Inf"] == next(iter(found[f"{name}_count"].values())) == 3
    label = ("judge", "")
    scores = [(1 - 1) / 9, (2 - 1) / 9, (3 - 1) / 9]
    assert found["referee_score_sum"][(label,)] == pytest.approx(sum(scores))
    assert [found["referee_score_bucket"][label, ("le", bound)] for bound in ("0.0", "0.1", "0.2", "0.3")] == [
        1,
        1,
        2,
        3,
    ]


def test_the_scores_of_several_judges_are_told_apart() -> None:
    """The same family, with each judge's name."""
    found = exported(judge=JUDGES)
    assert {labels: count for labels, count in found["referee_score_count"].items()} == {
        (("judge", "quality"),): 3,
        (("judge", "a/b"),): 3,
    }


def test_names_are_there_before_the_first_batch() -> None:
    """A dashboard is not empty because nothing has happened yet."""
    later = {"referee_http_answers_total"}
    for sections in ({}, {"judge": JUDGES}):
        assert set(exported(warm=False, **sections)) - later == set(exported(**sections)) - later


def test_several_judges_are_told_apart_by_a_label() -> None:
    """Whatever characters a name has; a lone judge has none of these families."""
    found = exported(judge=JUDGES)
    for name in ("quality", "a/b"):
        assert found["referee_judge_scored_total"][(("judge", name),)] == 3
        assert found["referee_judge_unscored_share"][(("judge", name),)] == 0
        assert 0 < found["referee_judge_score_mean"][(("judge", name),)] <= 1
    assert set(exported(judge=JUDGES)) - set(exported()) == {
        name for name in found if name.startswith("referee_judge_") and name != "referee_judge_requests_total"
    }


def test_criteria_are_told_apart_by_a_label() -> None:
    """Whatever characters their names have, and whichever judge they are of."""
    rates = {"criterion/Ω/pass_rate": 0.5, "criterion/Ж/pass_rate": 0.25, "judge/a/criterion/b/c/pass_rate": 1.0}
    (family,) = [family for family in referee_families(rates) if family.name == CRITERION]
    labels = [(item.labels["judge"], item.labels["criterion"], item.value) for item in family.samples]
    assert labels == [("", "Ω", 0.5), ("", "Ж", 0.25), ("a", "b/c", 1.0)]


def test_judges_of_groups_are_told_apart_by_a_label() -> None:
    """Also a lone one, whose label is empty."""
    found = referee_families({"comparisons": 4.0, "tie_share": 0.25, "judge/a/b/comparisons": 8.0})
    families = {family.name: family for family in found if family.samples}
    labels = [(item.labels["judge"], item.value) for item in families["referee_comparisons"].samples]
    assert labels == [("", 4.0), ("a/b", 8.0)]
    assert families["referee_comparisons"].type == "counter"
    assert families["referee_tie_share"].type == "gauge"


def test_every_metric_has_a_place() -> None:
    """Each name that Referee.metrics() promises is a counter, a gauge or a reason; a new one is still exported."""
    promised = {name for name in Tally().metrics() if not name.startswith(REASONS)} - {"unscored"}
    assert promised <= {*COUNTERS, *GAUGES}
    assert not set(COUNTERS) & set(GAUGES)
    assert next(family.name for family in referee_families({"a/new one": 1.0})) == "referee_a_new_one"


def test_every_name_is_documented() -> None:
    """docs/serve.md lists what /metrics shows, and nothing that it does not; of teams, test_teams says so."""
    listed = set(re.findall(r"`(referee_(?!team_)\w+)", (DOCS / "serve.md").read_text()))
    shown = {name for name in exported(judge=JUDGES, audit={"enable": True}) if name.startswith("referee_")}
    families = referee_families(Compared(lists=1, orders=1, comparisons=1).metrics())
    compared = {item.name for family in families for item in family.samples}
    plain = {name for name in shown if not is_histogram(name)}
    assert plain | {CRITERION, *AUDIT, *HISTOGRAMS} | compared == listed


def test_a_closed_judge_is_down() -> None:
    """referee_up is what an alert can stand on."""

    async def main() -> str:
        async with serving(ProviderSpec(key="right")) as served:
            await served.post("/v1/score", {"samples": [sample()]})
            return (await served.get("/metrics")).text

    found = asyncio.run(main())
    for name in ("referee_up", "referee_ready", "referee_draining"):
        assert f"\n{name} 0.0\n" in found
