"""The Ray runtime without Ray: engines shared by clients, their errors, and what each client keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.simulated_ray import BASE, CANARY, PATIENCE, Make, Start, samples, scores, wait_for

from referee.config import Config
from referee.errors import EndpointClosed, RefereeError
from referee.ledger.reader import read
from referee.scoring.worker import JudgeWorker


def test_two_clients_share_an_engine_and_its_cache(start: Start, connect: Make) -> None:
    """What one client had judged, the other gets from the cache, in its own order."""
    cluster = start()
    one, other = connect(cluster), connect(cluster)
    assert scores(one.score(samples(20))) == [n % 10 + 1 for n in range(20)]
    assert scores(other.score(samples(20))) == [n % 10 + 1 for n in range(20)]
    assert other.metrics()["cache_hits"] == 20
    assert len(cluster.engines) == 1


def test_equal_samples_of_two_clients_are_asked_once(start: Start, connect: Make) -> None:
    """One flight per key, whoever asks."""
    cluster = start(latency_median=0.3)
    one, other = connect(cluster), connect(cluster)
    tickets = [one.submit(samples(10)), other.submit(samples(10))]
    found = [ticket.result(PATIENCE) for ticket in tickets]
    assert scores(found[0]) == scores(found[1])
    assert cluster.provider.stats().received == 10


def test_one_limit_holds_for_all_clients(start: Start, connect: Make) -> None:
    """Three clients, one fixed limit: the provider never sees more at once."""
    cluster = start(latency_median=0.01)
    clients = [connect(cluster, limits={"concurrency": 5}) for _ in range(3)]
    tickets = [client.submit(samples(40, 100 * n)) for n, client in enumerate(clients)]
    for ticket in tickets:
        assert all(reward.scored for reward in ticket.result(PATIENCE))
    assert cluster.provider.stats().max_open <= 5


def test_close_ends_whoever_waits(start: Start, connect: Make) -> None:
    """Closing with work out gives every sample an end, and the engine stops judging for us."""
    cluster = start(latency_median=60.0)
    referee = connect(cluster)
    ticket = referee.submit(samples(5))
    wait_for(lambda: cluster.provider.stats().received > 0)
    (engine,) = cluster.engines.values()
    referee.close()
    assert {str(reward.verdict.reason) for reward in ticket.result(PATIENCE)} == {"cancelled"}  # type: ignore[union-attr]
    assert not engine._clients


def test_a_closed_endpoint_is_one_clear_error(start: Start, connect: Make) -> None:
    """A wrong key fails the batch with the setting to change."""
    referee = connect(start(key="right"))
    with pytest.raises(EndpointClosed, match="key_env"):
        referee.score(samples(10))


def test_an_engine_that_cannot_start_says_why(start: Start, connect: Make) -> None:
    """A fault at the worker is the caller's error, not silence, and later batches try again."""
    cluster = start()
    referee = connect(cluster)
    build, cluster.build = cluster.build, _broken  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(RefereeError, match="could not start: this cannot work"):
            referee.score(samples(2))
    cluster.build = build  # type: ignore[method-assign]
    cluster.kill()
    assert len(referee.score(samples(2))) == 2


def _broken(config: Config, lines: object, emit: object) -> JudgeWorker:
    raise RefereeError("this cannot work")


def test_lines_come_as_each_client_wants_them(start: Start, connect: Make, tmp_path: Path) -> None:
    """One client keeps contents, one digests, one nothing; texts that lines refer to reach each of them."""
    cluster = start()
    full = connect(cluster, ledger={"dir": str(tmp_path / "full")})
    lean = connect(cluster, ledger={"dir": str(tmp_path / "lean"), "content": False})
    none = connect(cluster)
    for referee in (none, lean, full):
        referee.score(samples(3))
        referee.close()
    kinds = {}
    for name in ("full", "lean"):
        kinds[name] = [type(line).__name__ for line in read(tmp_path / name)]
    assert kinds["full"].count("VerdictLine") == kinds["lean"].count("VerdictLine") == 3
    assert kinds["full"].count("TextLine") == 1
    assert kinds["lean"].count("TextLine") == 0


def test_an_engine_without_a_key_asks_its_client(start: Start, connect: Make) -> None:
    """A key given in Python is sent only when the engine says that it needs it, and then works."""
    cluster = start(key=CANARY)
    endpoint = {**BASE["endpoint"], "url": "https://sim.test/v1", "api_key": CANARY}
    referee = connect(cluster, endpoint=endpoint)
    assert scores(referee.score(samples(3))) == [1, 2, 3]
    assert CANARY not in "".join(cluster.engines)
