"""Who calls: the operator or a team, known by its token, and what each may use.

Tokens are compared by keyed digests, all of them every time: how long it takes tells nothing of any of them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

from referee.config import Config, Secret, chosen_judges, counts, is_variable, team_of
from referee.errors import ConfigError, InputError
from referee.server.refusals import Refusal

SHORTEST_TOKEN = 16
JUDGES = b"x-referee-judges"
OPEN_TO_TEAMS = ("/v1/", "/get_reward", "/slime", "/llamafactory", "/metrics", "/healthz", "/readyz", "/openapi.json")
"""Beginnings of the paths that a team may use. The rest, such as the live page, shows what other teams do."""
_PATH = re.compile(r"/teams/(?P<team>[^/]+)(?:/judges/(?P<judge>[^/]+))?(?P<rest>/.*)")


class Caller(NamedTuple):
    """Where a request comes from."""

    name: str = ""
    """The user name it gives, else its address. On trust."""
    team: str = ""
    """By its token; empty: the operator, or a service without teams."""
    judges: tuple[str, ...] = ()
    """Names of those that judge its samples; none: all."""

    @property
    def share(self) -> str:
        """What it shares room as: a team has one share, however many callers it has."""
        return f"team {self.team}" if self.team else self.name

    def submitted(self) -> dict[str, Any]:
        """What a Referee is told of it."""
        return {"caller": self.name, "team": self.team, "judges": self.judges}


class Tokens:
    """The tokens of one service."""

    def __init__(self, config: Config, operator: Secret | None, teams: Mapping[str, Secret]) -> None:
        self._operator = operator
        self._key = secrets.token_bytes(32)
        self.hidden: set[str] = set()
        """All that are or were tokens of this service: shown nowhere, wherever a client puts them."""
        self.renew(config, teams)

    def renew(self, config: Config, teams: Mapping[str, Secret]) -> None:
        """Teams and judges of another configuration, and the tokens of its teams. The operator's stays."""
        self._config, self.teams = config, teams
        known = {"": self._operator, **{team.name: teams.get(team.name) for team in config.team}}
        self._digests = {name: self._digest(token.reveal().encode()) for name, token in known.items() if token}
        self.hidden |= {token.reveal() for token in known.values() if token}

    @property
    def of_operator(self) -> bool:
        """Whether the operator has a token."""
        return self._operator is not None

    @property
    def open(self) -> bool:
        """Whether no token is asked for."""
        return not self._digests and not self._config.team

    def team_of(self, token: bytes) -> str | None:
        """The team of a token; empty: the operator's, or none is asked for. None: it is nobody's."""
        given, found = self._digest(token), "" if self.open else None
        for name, digest in self._digests.items():
            if hmac.compare_digest(given, digest):
                found = name
        return found

    def caller(self, scope: MutableMapping[str, Any], name: str, team: str, wanted: bytes) -> Caller:
        """The caller of a request, whose path loses what names team and judge. `wanted`: judges that its headers name.
        Raises a Refusal for what it may not use."""
        judges = tuple(filter(None, (one.strip() for one in wanted.decode("latin-1").split(","))))
        found = _PATH.fullmatch(scope["path"]) if self._config.team else None
        if found is not None:
            if found["team"] != team or not team:
                raise Refusal(
                    403, "not_yours", f"The token is not that of team {found['team']!r}, which this path names."
                )
            if found["judge"] and judges:
                raise Refusal(422, "bad_judges", "Judges are named in the path and in a header; one will do.")
            judges = (found["judge"],) if found["judge"] else judges
            scope["path"], scope["raw_path"] = found["rest"], found["rest"].encode()
        if team and not scope["path"].startswith(OPEN_TO_TEAMS):
            raise Refusal(403, "not_yours", "This path is the operator's. /openapi.json lists what there is.")
        return Caller(name, team, self._judges(team, judges))

    def _judges(self, team: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the judges of a request; none: all there are."""
        every = self._config.judge
        allowed = chosen_judges(every, team_of(self._config, team).judges if team else ())
        try:
            if wanted and not self._config.team:
                raise InputError("this service has no [[team]], so all judges of its configuration judge.")
            judges = chosen_judges(allowed, wanted)
        except InputError as error:
            raise Refusal(422, "bad_judges", f"X-Referee-Judges: {error} Nothing was judged.") from None
        if not counts(judges, every):
            raise Refusal(
                422,
                "bad_judges",
                f"X-Referee-Judges: {', '.join(wanted)}: weight 0, so nothing would be rewarded. Nothing was judged.",
            )
        return () if len(judges) == len(every) else tuple(judge.name for judge in judges)

    def _digest(self, token: bytes) -> bytes:
        return hashlib.blake2b(token, key=self._key, digest_size=32).digest()


def find_tokens(config: Config, env: Mapping[str, str]) -> dict[str, Secret]:
    """The tokens of all teams, each of its own."""
    found: dict[str, Secret] = {}
    owners: dict[str, str] = {}
    operator = env.get(config.serve.token_env, "").strip() if config.serve.token_env else ""
    if operator:
        owners[operator] = f"the operator's, of [serve] token_env = {config.serve.token_env!r}"
    for number, team in enumerate(config.team):
        setting = f"team[{number}].token_env"
        token = read_token(f"{setting} of team {team.name!r}", team.token_env, env, setting)
        owner = owners.setdefault(token.reveal(), f"that of team {team.name!r}")
        if owner != f"that of team {team.name!r}":
            raise ConfigError(
                f"{setting}: the token of team {team.name!r} is also {owner}. A team is known by its token: give it "
                "one of its own. Not started.",
                setting=setting,
            )
        found[team.name] = token
    return found


def read_token(what: str, variable: str, env: Mapping[str, str], setting: str) -> Secret:
    """The token in a variable. ConfigError, which does not show it, if it is not there or too weak."""
    text = env.get(variable, "").strip()
    if len(text) < SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        shown = repr(variable) if is_variable(variable) else "(not shown: no name of a variable)"
        state = "is not set" if not text else "is shorter than that or has characters a header cannot hold"
        raise ConfigError(
            f"{what} = {shown} must name an environment variable with at least {SHORTEST_TOKEN} plain "
            f"characters; it {state}. Make one with `openssl rand -hex 24`. Not started.",
            setting=setting,
        )
    return Secret(text)
