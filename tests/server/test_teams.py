"""Teams over HTTP: known by their tokens, judged by their judges, stopped by their own budgets only."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import re
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.harness import TOKEN, HeldTransport, Served, config_for, sample, serving, until

from referee import clock
from referee.config import Secret
from referee.errors import ConfigError
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.server import add_page
from referee.server.tokens import find_tokens
from referee.sim import ProviderSpec

TOKENS = {name: f"token-of-{name}-0123456789" for name in ("math", "code", "poor")}
JUDGES = [
    {"name": "quality", "kind": "score", "weight": 0.75},
    {"name": "safe", "kind": "yes_no", "weight": 0.25},
    {"name": "watched", "kind": "integer", "weight": 0.0},
]
PRICED = {"price_in": 10.0, "price_out": 10.0}


def rows(count: int, name: str = "") -> list[dict[str, Any]]:
    """Samples of qualities 1 to 10, each different."""
    return [sample(number % 10 + 1, f"{name} {number}") for number in range(count)]


def bearer(team: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS.get(team, TOKEN)}", **more}


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """A service of three teams: of all judges, of one, and one with hardly any money."""
    teams = [
        {"name": "math", "token_env": "A", "judges": ["quality"]},
        {"name": "code", "token_env": "B", "rpm": 600_000},
        {"name": "poor", "token_env": "C", "judges": ["quality"], "budget_usd_day": 0.000_01},
    ]
    found = {"team": teams, "judge": JUDGES, "endpoint": PRICED, "serve": {"state": str(folder / "serve.sqlite")}}
    return {"token": TOKEN, "teams": TOKENS, **found, **more}


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def score(served: Served, team: str, count: int = 1, path: str = "/v1/score", **headers: str) -> httpx.Response:
    return await served.post(path, {"samples": rows(count, team)}, headers=bearer(team, **headers))


def judges_of(answer: httpx.Response) -> list[str]:
    """Names of the judges that made the first reward."""
    assert answer.status_code == 200, answer.text
    result = answer.json()["results"][0]
    return list(result["judges"]) or ["alone"]


def numbers(text: str) -> dict[tuple[str, ...], float]:
    """Series by name and labels, those of teams only."""
    return {
        (one.name, *(one.labels[label] for label in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name.startswith("referee_team_") and not one.name.endswith("_created")
    }


def test_a_team_is_judged_by_its_judges(tmp_path: Path) -> None:
    """All of them for the operator and for a team that names none; a lone judge's reward is its own, with its
    weight."""

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            everything = ["quality", "safe", "watched"]
            assert judges_of(await score(served, "operator")) == everything
            assert judges_of(await score(served, "code")) == everything
            answer = await score(served, "math", 3)
            assert judges_of(answer) == ["alone"]
            for given, result in zip(rows(3), answer.json()["results"], strict=True):
                quality = int(given["response"].split("=")[1].split("]")[0])
                assert result["reward"] == pytest.approx(0.75 * (quality - 1) / 9)

    play(main())


@pytest.mark.parametrize(
    ("path", "header", "found"),
    [
        ("/v1/score", "quality", ["alone"]),
        ("/v1/score", "safe, quality", ["quality", "safe"]),
        ("/teams/code/v1/score", "", ["quality", "safe", "watched"]),
        ("/teams/code/judges/safe/v1/score", "", ["alone"]),
    ],
)
def test_a_request_may_be_narrowed(tmp_path: Path, path: str, header: str, found: list[str]) -> None:
    """By a header, or by the path where a trainer takes only a URL."""

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            more = {"x-referee-judges": header} if header else {}
            assert judges_of(await score(served, "code", path=path, **more)) == found

    play(main())


def test_judges_in_several_headers_are_one_list(tmp_path: Path) -> None:
    """As HTTP says of a list: a proxy may write it either way. A probe without a token learns of no judge."""

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            two = [*bearer("code").items(), ("x-referee-judges", "safe"), ("x-referee-judges", "quality")]
            answer = await served.client.post("/v1/score", json={"samples": rows(1)}, headers=two)
            assert judges_of(answer) == ["quality", "safe"]
            probe = await served.get("/readyz", headers={"x-referee-judges": "qualty"})
            assert (probe.status_code, probe.json()["status"]) == (200, "ok")

    play(main())


@pytest.mark.parametrize(
    ("team", "path", "header", "status", "error", "says"),
    [
        ("math", "/v1/score", "safe", 422, "bad_judges", "Known here: quality"),
        ("code", "/v1/score", "qualty", 422, "bad_judges", "Did you mean 'quality'?"),
        ("code", "/v1/score", "watched", 422, "bad_judges", "weight 0"),
        ("code", "/teams/code/judges/safe/v1/score", "safe", 422, "bad_judges", "one will do"),
        ("code", "/teams/math/v1/score", "", 403, "not_yours", "'math'"),
        ("operator", "/teams/math/v1/score", "", 403, "not_yours", "'math'"),
        ("nobody", "/v1/score", "", 401, "no_token", "needs its token"),
        ("nobody", "/teams/math/v1/score", "", 401, "no_token", "needs its token"),
        ("nobody", "/teams/math/healthz", "", 401, "no_token", "needs its token"),
        ("math", "/live/", "", 403, "not_yours", "operator's"),
        ("math", "/teams/math/live/", "", 403, "not_yours", "operator's"),
        ("math", "/teams/math/teams/code/v1/score", "", 403, "not_yours", "operator's"),
    ],
)
def test_what_is_not_a_callers_is_refused(
    tmp_path: Path, team: str, path: str, header: str, status: int, error: str, says: str
) -> None:
    """By name, and before anything is judged."""

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            add_page(served.app, "/live/", lambda query: "what all teams do")
            more = {"x-referee-judges": header} if header else {}
            headers = bearer(team, **more) if team != "nobody" else {"authorization": "Bearer token-of-nobody-0123456"}
            answer = await served.post(path, {"samples": [sample()]}, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (status, error)
            assert says in answer.json()["message"]
            assert served.held.asked == 0

    play(main())


def test_trainers_paths_are_there_for_teams_too(tmp_path: Path) -> None:
    """With the token as the password of the URL, and the team's name in its path."""

    async def main() -> None:
        basic = base64.b64encode(f"job-7:{TOKENS['math']}".encode()).decode()
        headers = {"authorization": f"Basic {basic}"}
        text = "p[[quality=10]]"
        async with serving(**settings(tmp_path)) as served:
            for path, body in (
                ("/get_reward", {"query": [text], "prompts": ["p"]}),
                ("/slime", {"prompt": "p", "response": "[[quality=10]]"}),
                ("/llamafactory", {"model": "m", "messages": [text]}),
            ):
                answer = await served.post(f"/teams/math{path}", body, headers=headers)
                assert answer.status_code == 200, answer.text
                assert "0.75" in answer.text
            page = await served.get("/metrics", headers=bearer("operator"))
            assert 'route="/slime",status="200"' in page.text

    play(main())


def test_a_spent_budget_stops_its_team_and_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """429 with the next midnight, on every path; cached verdicts are still answered, and the service stays well. The
    log says it once."""

    async def main() -> None:
        async with serving(**settings(tmp_path), missing={"policy": "value", "value": 0.5}) as served:
            answer = await score(served, "poor", 5)
            assert (answer.status_code, answer.json()["error"]) == (429, "budget")
            assert 0 < int(answer.headers["retry-after"]) <= 86_400
            assert "Team 'poor' has spent $0 of its budget_usd_day = 1e-05 in 20" in answer.json()["message"]
            for path, body in (
                ("/get_reward", {"query": ["p[[quality=10]]"], "prompts": ["p"]}),
                ("/slime", {"prompt": "p", "response": "[[quality=10]]"}),
            ):
                answer = await served.post(path, body, headers=bearer("poor"))
                assert (answer.status_code, answer.json()["error"]) == (429, "budget")
            ticket = await served.post("/v1/tickets", {"samples": [sample(3)]}, headers=bearer("poor"))
            answer = await served.get(f"/v1/tickets/{ticket.json()['id']}?wait=30", headers=bearer("poor"))
            assert (answer.status_code, answer.json()["error"]) == (429, "budget")
            same = {"samples": rows(4, "same")}
            assert (await served.post("/v1/score", same, headers=bearer("math"))).status_code == 200
            assert (await served.post("/v1/score", same, headers=bearer("poor"))).status_code == 200
            both = {"samples": [*rows(4, "same"), sample(9, "new")]}
            found = (await served.post("/v1/score", both, headers=bearer("poor"))).json()["results"]
            assert [row["unscored"] for row in found] == ["", "", "", "", "budget"]
            assert found[-1]["detail"].startswith("team poor: budget_usd_day = 1e-05 has no room")
            health = await served.get("/healthz")
            assert (health.status_code, health.json()["status"]) == (200, "ok")
            seen = numbers((await served.get("/metrics", headers=bearer("operator"))).text)
            assert seen["referee_team_refused_total", "poor", "budget"] == 4
            assert seen["referee_team_budget_usd", "day", "poor"] == 0.000_01
            assert seen["referee_team_spent_usd", "day", "poor"] == 0
            assert seen["referee_team_samples_total", "math"] == seen["referee_team_requests_total", "math"] == 4
            cost = seen["referee_team_cost_usd_total", "math"]
            assert cost == pytest.approx(seen["referee_team_spent_usd", "month", "math"])
            assert cost > 0

    play(main())
    assert len([line for line in caplog.messages if line.startswith("team poor has spent $0")]) == 1


def test_a_teams_spent_budget_is_not_the_services_after_midnight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of which a sample had no money ends after the day has changed: the service stays ready for all."""

    async def main() -> None:
        async with serving(**settings(tmp_path), held=True) as served:
            asked = asyncio.create_task(served.post("/v1/score", {"samples": [sample(3)]}, headers=bearer("math")))
            await until(lambda: served.held.asked == 1)
            body = {"samples": [sample(4, "no money"), sample(3)]}
            ticket = (await served.post("/v1/tickets", body, headers=bearer("poor"))).json()["id"]
            while (await served.get(f"/v1/tickets/{ticket}?wait=0.05", headers=bearer("poor"))).json()["landed"] != 1:
                pass
            today = clock.wall
            monkeypatch.setattr(clock, "wall", lambda: today() + 86_400.0)
            served.held.release()
            found = (await served.get(f"/v1/tickets/{ticket}?wait=30", headers=bearer("poor"))).json()["results"]
            assert [row["unscored"] for row in found] == ["budget", ""]
            assert (await asked).status_code == 200
            assert (await served.get("/readyz")).json()["status"] == "ok"

    play(main())


@pytest.mark.parametrize("policy", [{"policy": "raise"}, {"policy": "group_mean"}, {"abort_above": 0.001}])
def test_a_spent_budget_is_said_under_every_policy(tmp_path: Path, policy: dict[str, Any]) -> None:
    """Also where missing samples are an error of their own."""

    async def main() -> None:
        async with serving(**settings(tmp_path), missing=policy) as served:
            for _ in range(2):
                answer = await score(served, "poor", 5)
                assert (answer.status_code, answer.json()["error"]) == (429, "budget")
            assert (await score(served, "math", 5)).status_code == 200

    play(main())


def test_a_team_sees_its_own_numbers_only(tmp_path: Path) -> None:
    """All the operator's series are kept from it, and other teams' names too."""

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            await score(served, "math", 3)
            text = (await served.get("/metrics", headers=bearer("math"))).text
            assert {name[-1] for name in numbers(text) if name[0] != "referee_team_refused_total"} <= {"math"}
            assert "code" not in text
            assert "process_" not in text
            assert numbers(text)["referee_team_samples_total", "math"] == 3

    play(main())


def test_every_number_of_a_team_is_documented(tmp_path: Path) -> None:
    """docs/serve.md lists what a team is shown, and nothing that it is not."""
    page = Path(__file__).parents[2] / "docs" / "serve.md"
    listed = set(re.findall(r"`(referee_team_\w+)\{", page.read_text()))

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            text = (await served.get("/metrics", headers=bearer("poor"))).text
            assert {name[0] for name in numbers(text)} == listed

    play(main())


def test_a_ticket_is_its_teams(tmp_path: Path) -> None:
    """To another team there is none of that name; the operator may look."""

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            ticket = await served.post("/teams/math/v1/tickets", {"samples": [sample()]}, headers=bearer("math"))
            place = f"/v1/tickets/{ticket.json()['id']}"
            assert (await served.get(place, headers=bearer("code"))).status_code == 404
            assert (await served.client.delete(place, headers=bearer("code"))).status_code == 404
            assert (await served.get(f"{place}?wait=30", headers=bearer("math"))).json()["done"]
            assert (await served.get(place, headers=bearer("operator"))).status_code == 200

    play(main())


def test_a_team_has_one_share_of_the_queue_however_many_callers(tmp_path: Path) -> None:
    """Ten jobs of one team do not leave a tenth to another."""

    async def main() -> None:
        serve = {"state": str(tmp_path / "s.sqlite"), "max_queue": 12}
        async with serving(**settings(tmp_path, serve=serve), held=True) as served:
            jobs = []
            for number in range(12):
                basic = base64.b64encode(f"job-{number}:{TOKENS['math']}".encode()).decode()
                headers = {"authorization": f"Basic {basic}"}
                body = {"samples": rows(1, f"m{number}")}
                jobs.append(asyncio.create_task(served.post("/v1/score", body, headers=headers)))
            await until(lambda: served.service.pending == 12)
            refused = await score(served, "math")
            assert (refused.status_code, refused.json()["error"]) == (429, "busy")
            code = asyncio.create_task(score(served, "code", 6))
            await until(lambda: served.service.pending == 18)
            served.held.release()
            assert {(await job).status_code for job in (*jobs, code)} == {200}

    play(main())


def test_slow_bodies_of_a_team_keep_no_other_out(tmp_path: Path) -> None:
    """A team that holds all room for bodies is refused another; those of the others are read."""

    async def main() -> None:
        serve = {"state": str(tmp_path / "s.sqlite"), "max_body": 4096}
        async with serving(**settings(tmp_path, serve=serve)) as served:
            sent, rest = [asyncio.Event() for _ in range(4)], asyncio.Event()
            body = json.dumps({"samples": rows(1)}).encode()

            async def slow(begun: asyncio.Event) -> AsyncIterator[bytes]:
                yield b" " * (4096 - len(body))
                begun.set()
                await rest.wait()
                yield body

            headers = {"content-type": "application/json", **bearer("math")}
            post = served.client.post
            held = [asyncio.create_task(post("/v1/score", content=slow(one), headers=headers)) for one in sent]
            await asyncio.gather(*(one.wait() for one in sent))
            large = post("/v1/score", content=b" " * 2048, headers=headers)
            assert (await large).json()["error"] == "busy"
            assert (await score(served, "code", 20)).status_code == 200
            rest.set()
            assert {(await one).status_code for one in held} == {200}
            assert (await score(served, "math")).status_code == 200

    play(main())


def test_columns_are_those_of_the_teams_judges(tmp_path: Path) -> None:
    """A team is not asked for what only another team's judge shows."""

    async def main() -> None:
        template = tmp_path / "judge.txt"
        template.write_text("{{prompt}}\n{{response}}\nThe policy: {{columns.policy}}\n{{reply}}")
        judges = [*JUDGES[:1], {"name": "safe", "kind": "yes_no", "prompt_file": str(template)}]
        async with serving(**settings(tmp_path, judge=judges)) as served:
            assert (await score(served, "math")).status_code == 200
            missing = await score(served, "code")
            assert (missing.status_code, "columns.policy" in missing.json()["message"]) == (422, True)

    play(main())


def test_without_teams_there_is_nothing_to_narrow() -> None:
    """The configuration chooses the judges, and a header that would be read past is refused."""

    async def main() -> None:
        async with serving() as served:
            answer = await served.post("/v1/score", {"samples": [sample()]}, headers={"x-referee-judges": "judge"})
            assert (answer.status_code, answer.json()["error"]) == (422, "bad_judges")
            assert (await served.post("/teams/math/v1/score", {"samples": [sample()]})).status_code == 404

    play(main())


def test_a_team_whose_sums_cannot_be_looked_up_is_told_so(tmp_path: Path) -> None:
    """503, and nothing is asked for it; a team without a budget goes on."""

    async def main() -> None:
        (tmp_path / "serve.sqlite").mkdir()
        async with serving(**settings(tmp_path)) as served:
            accounts = served.service.teams.accounts
            assert accounts is not None
            await until(lambda: bool(accounts.trouble))
            answer = await score(served, "poor")
            assert (answer.status_code, answer.json()["error"]) == (503, "state")
            assert (await score(served, "math")).status_code == 200
            assert served.held.asked == 1

    play(main())


def test_a_batch_that_waited_in_vain_for_the_sums_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was let in before they could not be looked up: at its deadline it is 503 as later ones are at once."""
    monkeypatch.setattr("referee.engine.spend_file.BUSY_S", 0.01)

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            accounts = served.service.teams.accounts
            assert accounts is not None
            await until(lambda: accounts.members == 1)
            with contextlib.closing(sqlite3.connect(tmp_path / "serve.sqlite")) as other:
                other.execute("BEGIN EXCLUSIVE")
                for more in ({"deadline": 1.0}, {}):
                    answer = await served.post("/v1/score", {"samples": rows(1), **more}, headers=bearer("poor"))
                    assert (answer.status_code, answer.json()["error"]) == (503, "state")
            assert served.held.asked == 0

    play(main())


def test_probes_name_teams_whose_budget_is_spent(tmp_path: Path) -> None:
    """To the operator, and to a team of itself; to nobody without a token. Ready as long as anybody may spend."""

    async def told(served: Served, team: str) -> tuple[int, list[str]]:
        answer = await served.get("/readyz", headers=bearer(team) if team else {})
        return answer.status_code, answer.json()["spent_teams"]

    async def main() -> None:
        async with serving(**settings(tmp_path)) as served:
            assert await told(served, "operator") == (200, [])
            assert (await score(served, "poor")).status_code == 429
            assert await told(served, "operator") == (200, ["poor"])
            assert await told(served, "poor") == (200, ["poor"])
            assert await told(served, "math") == await told(served, "") == (200, [])
        poor = settings(tmp_path)["team"][2:]
        for token, status in ((TOKEN, 200), ("", 503)):
            async with serving(**settings(tmp_path, team=poor, token=token)) as served:
                assert (await score(served, "poor")).status_code == 429
                assert (await told(served, "poor"))[0] == (await told(served, ""))[0] == status
                ready = "referee_ready 1.0" in (await served.get("/metrics", headers=bearer("operator"))).text
                assert ready is (status == 200)
                assert (await served.get("/healthz")).status_code == 200

    play(main())


def test_a_reload_changes_teams_and_judges(tmp_path: Path) -> None:
    """Names, tokens, judges and budgets are the new ones at once; counts and what is spent go on."""
    sections = settings(tmp_path)
    changed = {
        "team": [
            {"name": "math", "token_env": "A", "judges": ["grade"], "budget_usd_day": 5.0},
            {"name": "poor", "token_env": "C", "budget_usd_day": 1.0},
            {"name": "late", "token_env": "D"},
        ],
        "judge": [{"name": "grade", "kind": "score"}, {"name": "safe", "kind": "yes_no"}],
    }
    tokens = {**TOKENS, "late": "token-of-late-0123456789"}

    async def main() -> None:
        async with serving(**sections) as served:
            assert (await score(served, "math", 3)).status_code == 200
            assert (await score(served, "poor")).status_code == 429
            before = numbers((await served.get("/metrics", headers=bearer("operator"))).text)
            transport = HeldTransport(ProviderSpec())
            transport.release()
            config = config_for(**{**{k: v for k, v in sections.items() if k not in ("token", "teams")}, **changed})
            new = Referee(config, worker_with(lambda: transport, random.Random(1), b"secret"))
            served.service.renew(new, {name: Secret(tokens[name]) for name in ("math", "poor", "late")})
            headers = {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}
            body = {"samples": rows(2, "again")}

            async def ask(team: str, **more: str) -> httpx.Response:
                return await served.post("/v1/score", body, headers={**headers[team], **more})

            assert judges_of(await ask("math")) == ["alone"]
            assert judges_of(await ask("late")) == judges_of(await ask("poor")) == ["grade", "safe"]
            assert judges_of(await ask("late", **{"x-referee-judges": "grade"})) == ["alone"]
            assert (await ask("math", **{"x-referee-judges": "quality"})).json()["error"] == "bad_judges"
            assert (await ask("code")).status_code == 401
            await until(lambda: not served.service.referees.older)
            after = numbers((await served.get("/metrics", headers=bearer("operator"))).text)
            counted = {name for name in before if name[0].endswith("_total") and "code" not in name}
            assert all(after[name] >= before[name] for name in counted)
            assert after["referee_team_requests_total", "math"] == before["referee_team_requests_total", "math"] + 2
            assert after["referee_team_budget_usd", "day", "poor"] == 1.0
            assert after["referee_team_spent_usd", "month", "math"] >= before["referee_team_spent_usd", "month", "math"]

    play(main())


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"A": "a" * 16}, "team[1].token_env of team 'code' = 'B' must name an environment variable with at least 16"),
        ({"A": "a" * 16, "B": "b" * 15}, "it is shorter than that"),
        ({"A": "c" * 16, "B": "c" * 16}, "the token of team 'code' is also that of team 'math'"),
        ({"A": "a" * 16, "B": "o" * 16, "O": "o" * 16}, "the token of team 'code' is also the operator's"),
    ],
)
def test_a_service_with_bad_tokens_does_not_start(env: dict[str, str], says: str) -> None:
    """They are named by team and variable, never shown."""
    teams = [{"name": "math", "token_env": "A"}, {"name": "code", "token_env": "B"}]
    config = config_for(team=teams, serve={"token_env": "O"})
    with pytest.raises(ConfigError) as caught:
        find_tokens(config, env)
    assert says in str(caught.value)
    assert not any(token in str(caught.value) for token in env.values())


def test_a_greedy_team_without_money_leaves_the_room_to_others(tmp_path: Path) -> None:
    """Its samples end at once, over HTTP as well."""

    async def main() -> None:
        async with serving(ProviderSpec(), **settings(tmp_path)) as served:
            large = asyncio.create_task(score(served, "poor", 2_000))
            small = await score(served, "math", 64)
            assert small.status_code == 200
            assert (await large).status_code == 429

    play(main())
