"""What each team asked for, spent and may spend, in Prometheus' text form. `referee docs serve` lists the names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from referee import clock
from referee.server.service import Service
from referee.server.tokens import Caller

OF_TEAM = "team/"
COUNTED = {
    "samples": "Samples of this team whose judging has ended.",
    "unscored": "Samples of this team without a verdict.",
    "cost_usd": "US dollars spent for its samples.",
    "requests": "Requests sent to judges for this team.",
}
"""Under `team/<name>/` in the Referee's own metrics."""
WHY = ("budget", "full")


def team_families(service: Service, found: Mapping[str, float], only: str = "") -> Iterator[Metric]:
    """The numbers of all teams, or of one. `found`: the Referee's metrics."""
    teams = [team for team in service.teams.names if only in ("", team)]
    if not teams:
        return
    for name, says in COUNTED.items():
        family = CounterMetricFamily(f"referee_team_{name}", says, labels=["team"])
        for team in teams:
            family.add_metric([team], found.get(f"{OF_TEAM}{team}/{name}", 0.0))
        yield family
    refused = CounterMetricFamily(
        "referee_team_refused", "Requests of this team answered 429, by why.", labels=["team", "why"]
    )
    pending = GaugeMetricFamily(
        "referee_team_pending_samples", "Samples of this team accepted and not yet collected.", labels=["team"]
    )
    budget = GaugeMetricFamily(
        "referee_team_budget_usd", "US dollars it may spend in a day or a month (UTC).", labels=["team", "period"]
    )
    spent = GaugeMetricFamily(
        "referee_team_spent_usd", "US dollars it has spent in this one, before restarts too.", labels=["team", "period"]
    )
    for team in teams:
        account = service.teams.account(team)
        assert account is not None
        pending.add_metric([team], service.room.held(Caller(team=team).share))
        for why in WHY:
            refused.add_metric([team, why], service.teams.refused[team, why])
        for of_period in account.budgets(clock.wall()):
            spent.add_metric([team, of_period.period.kind], of_period.total_spent)
            if of_period.limit_usd is not None:
                budget.add_metric([team, of_period.period.kind], of_period.limit_usd)
    yield from (refused, pending, budget, spent)
