"""Teams that share one service: their settings, and what must hold of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from referee.config.judge_schema import JudgeConfig
from referee.config.judges import all_judges, asking_judges, endpoints_of
from referee.config.keys import is_variable
from referee.config.schema import Config
from referee.config.team_schema import TeamConfig
from referee.errors import InputError, Refuse, nearest

LONGEST_NAME = 64
MOST_USD = 1_000_000
"""Of a budget: sums of nano-dollars are exact in Redis up to nine times this."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def check_teams(config: Config, refuse: Refuse) -> None:
    """Raise what `refuse` makes of the first problem."""
    if not config.team:
        return
    if config.runtime != "thread":
        raise refuse(
            "runtime",
            f'"{config.runtime}" knows no teams: with [[team]] it must be "thread". To use more processors, start '
            "several `referee serve` with one [redis] url: they share budgets and rates.",
        )
    if config.audit.enable:
        raise refuse(
            "audit.enable",
            "does not go with [[team]]: answers of several teams' policies are no one run. Enable the audit where each "
            "policy is trained, or look at its record with `referee audit`.",
        )
    if not config.serve.state and not config.redis.url:
        raise refuse("serve.state", "must name a file: without it a restart would forget what the teams have spent.")
    names: dict[str, int] = {}
    variables = {config.serve.token_env: "[serve] token_env"} if config.serve.token_env else {}
    for number, team in enumerate(config.team):
        where = f"team[{number}]"
        if not _NAME.fullmatch(team.name) or len(team.name) > LONGEST_NAME:
            raise refuse(
                f"{where}.name",
                f"must be lower-case letters, digits and hyphens, at most {LONGEST_NAME}, not {team.name[:80]!r}: it "
                "stands in URLs and metrics.",
            )
        if team.name in names:
            raise refuse(f"{where}.name", f"{team.name!r} is also the name of team[{names[team.name]}].")
        names[team.name] = number
        if not is_variable(team.token_env):
            raise refuse(
                f"{where}.token_env",
                f"of team {team.name!r} must be the name of an environment variable, such as "
                f"{team.name.upper().replace('-', '_')}_TOKEN, that holds its token. What is there now is not shown.",
            )
        if team.token_env in variables:
            raise refuse(
                f"{where}.token_env",
                f"{team.token_env} is that of {variables[team.token_env]} too. A team is known by its token: give "
                f"{team.name!r} one of its own.",
            )
        variables[team.token_env] = f"team {team.name!r}"
        _check_judges(team, config, where, refuse)
        _check_money(team, config, where, refuse)
        if team.rpm is not None and team.rpm < 1:
            raise refuse(f"{where}.rpm", f"must be at least 1, not {team.rpm}.")


def _check_judges(team: TeamConfig, config: Config, where: str, refuse: Refuse) -> None:
    try:
        chosen = chosen_judges(config.judge, team.judges)
    except InputError as error:
        raise refuse(f"{where}.judges", f"of team {team.name!r}: {error}") from None
    if len(set(team.judges)) < len(team.judges):
        raise refuse(f"{where}.judges", f"of team {team.name!r}: names a judge twice: {', '.join(team.judges)}.")
    if not counts(chosen, config.judge):
        raise refuse(
            f"{where}.judges", f"of team {team.name!r}: all of them have weight 0, so nothing would be rewarded."
        )


def _check_money(team: TeamConfig, config: Config, where: str, refuse: Refuse) -> None:
    for name in ("budget_usd_day", "budget_usd_month"):
        limit: float | None = getattr(team, name)
        if limit is None:
            continue
        if not 0 < limit <= MOST_USD:
            raise refuse(f"{where}.{name}", f"must be above 0 and at most {MOST_USD:,}, not {limit}.")
        for judge in asking_judges(chosen_judges(config.judge, team.judges)):
            for number in endpoints_of(judge, config.endpoint):
                if config.endpoint[number].price_in is None:
                    raise refuse(
                        f"{where}.{name}",
                        f"needs endpoint[{number}].price_in and price_out (US dollars per million tokens): judge "
                        f"{judge.name!r} asks there.",
                    )


def chosen_judges(judges: Sequence[JudgeConfig], names: Iterable[str]) -> tuple[JudgeConfig, ...]:
    """Those of a configuration's judges with these names, in the order of the configuration; all for no names. Raises
    InputError for a name that is no term of the reward."""
    wanted = list(names)
    terms = [judge.name for judge in judges]
    for name in wanted:
        if name not in terms:
            raise InputError(_unknown(name, judges, terms), field="judges")
    return tuple(judge for judge in judges if not wanted or judge.name in wanted)


def team_of(config: Config, name: str) -> TeamConfig:
    """The team of this name. Raises InputError where there is none."""
    for team in config.team:
        if team.name == name:
            return team
    raise InputError(f"no [[team]] is named {name!r}.", field="team")


def counts(chosen: Sequence[JudgeConfig], judges: Sequence[JudgeConfig]) -> bool:
    """Whether a reward of these can differ between samples. A lone judge is taken at its word."""
    return len(judges) == 1 or any(judge.weight != 0 for judge in chosen)


def _unknown(name: str, judges: Sequence[JudgeConfig], terms: Collection[str]) -> str:
    above = [judge.name for judge in judges if any(inner.name == name for inner in all_judges(judge.uses))]
    if above:
        return f"judge {name!r} is used by {above[0]!r} and so is no term of the reward: name {above[0]!r}."
    return f"no judge is named {name!r}.{nearest(name, terms)}"
