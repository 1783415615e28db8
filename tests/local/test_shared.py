"""One embedded server for all processes that want the same file: started once, ended when none uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from referee import clock
from referee.config import Config, EndpointConfig, LocalConfig, load
from referee.errors import ConfigError
from referee.local import model, server, shared
from referee.local.model import PLAIN_TEMPLATE, ServerSpec, spec_of

FAKE = """
import http.server, json, sys, threading
from referee.local import __main__ as child
spec = json.loads(sys.argv[1])
child.LINGER_S = 0.0
child.LOCK_POLL_S = 0.02
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
threading.Thread(target=http_server.serve_forever, daemon=True).start()
print(json.dumps({"url": f"http://127.0.0.1:{http_server.server_port}", "model": spec["alias"]}), flush=True)
child._wait_for_users_to_leave(spec["users"])
"""
"""In the place of the process that holds the model: it listens, and ends as that one does."""
USER = """
import sys
from referee.local import server, shared
from referee.local.model import ServerSpec
server._command = lambda spec: [sys.executable, "-c", sys.argv[2], server.msgspec.json.encode(spec).decode()]
used = shared.use(ServerSpec(sys.argv[1], "judge"), timeout=60.0)
print(used.url, flush=True)
sys.stdin.read()
"""
TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(shared.tempfile, "tempdir", None)
    yield
    monkeypatch.setattr(shared.tempfile, "tempdir", None)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that a fake server serves."""

    def command(spec: ServerSpec) -> list[str]:
        return [sys.executable, "-c", FAKE, server.msgspec.json.encode(spec).decode()]

    monkeypatch.setattr(server, "_command", command)
    found = tmp_path / "judge.gguf"
    found.write_bytes(b"GGUF and weights")
    return found


def users(tmp_path: Path) -> list[Path]:
    """The files of servers that run."""
    return list(tmp_path.rglob("*.users"))


def all_ended(tmp_path: Path) -> bool:
    """Whether every server has ended, within a time that is far more than it takes."""
    deadline = clock.monotonic() + TIMEOUT
    while users(tmp_path) and clock.monotonic() < deadline:
        clock.pause(0.02)
    return not users(tmp_path)


def test_users_share_one_server_and_the_last_ends_it(file: Path, tmp_path: Path) -> None:
    """The second finds the first one's; it stays until both have left."""
    first, second = (shared.use(ServerSpec(str(file), "judge"), TIMEOUT) for _ in range(2))
    assert (first.url, first.known_as) == (second.url, second.known_as)
    assert len(users(tmp_path)) == 1
    first.close()
    first.close()
    third = shared.use(ServerSpec(str(file), "judge"), TIMEOUT)
    assert third.url == second.url
    second.close()
    third.close()
    assert all_ended(tmp_path)
    fourth = shared.use(ServerSpec(str(file), "judge"), TIMEOUT)
    assert len(users(tmp_path)) == 1
    fourth.close()
    assert all_ended(tmp_path)


def test_other_processes_share_it_and_a_killed_one_leaves(file: Path, tmp_path: Path) -> None:
    """What a process held is released however it ends, also by kill -9, and the server ends."""
    command = [sys.executable, "-c", USER, str(file), FAKE]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        urls = [process.stdout.readline() for process in processes if process.stdout]
        assert len(set(urls)) == 1
        assert urls[0].startswith(b"http")
        assert len(users(tmp_path)) == 1
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert all_ended(tmp_path)


def test_a_killed_server_is_not_taken_for_another_at_its_port(file: Path, tmp_path: Path) -> None:
    """The port of one that was killed may belong to a server of another model: it is not asked in its place."""
    other = file.with_name("other.gguf")
    other.write_bytes(b"GGUF and other weights")
    first, second = (shared.use(ServerSpec(str(path), "judge"), TIMEOUT) for path in (file, other))
    killed = next(record for record in tmp_path.rglob("*.json") if first.url in record.read_text())
    pid = msgspec.json.decode(killed.read_bytes())["pid"]
    os.kill(pid, signal.SIGKILL)
    deadline = clock.monotonic() + TIMEOUT
    while shared._runs(pid) and clock.monotonic() < deadline:
        clock.pause(0.02)
    killed.write_text(killed.read_text().replace(first.url, second.url))
    third = shared.use(ServerSpec(str(file), "judge"), TIMEOUT)
    assert third.url != second.url
    for used in (first, second, third):
        used.close()


def test_another_file_or_another_way_is_another_server(file: Path, tmp_path: Path) -> None:
    """A file that was written anew, or another template, does not get the old one's answers."""
    one = shared.use(ServerSpec(str(file), "judge"), TIMEOUT)
    other = shared.use(ServerSpec(str(file), "judge", template=""), TIMEOUT)
    file.write_bytes(b"GGUF and other weights")
    third = shared.use(ServerSpec(str(file), "judge"), TIMEOUT)
    assert len({one.url, other.url, third.url}) == len({one.known_as, other.known_as, third.known_as}) == 3
    for used in (one, other, third):
        used.close()
    assert all_ended(tmp_path)


def test_a_configuration_gets_the_address(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its local endpoint changes; the cache knows the file by its content, or by the name the user gave."""
    monkeypatch.setattr(model, "_installed", lambda _: True)
    config = load({"endpoint": [{"provider": "local", "model": str(file)}, {"model": "m", "backup": True}]})
    found, servers = shared.attach(config)
    assert found.endpoint[0].url == servers[0].url
    assert found.endpoint[0].known_as.startswith("gguf:")
    assert found.endpoint[0].label == config.endpoint[0].label == "judge"
    assert found.endpoint[1] is config.endpoint[1]
    for used in servers:
        used.close()
    assert all_ended(tmp_path)
    assert shared.attach(load({})) == (load({}), [])


def test_a_folder_of_another_user_is_not_used(file: Path, tmp_path: Path) -> None:
    """Another user could put its own server's address there."""
    folder = tmp_path / f"referee-local-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="this user alone"):
        shared.use(ServerSpec(str(file), "judge"), TIMEOUT)


def local(path: Path | str, **settings: object) -> EndpointConfig:
    """An endpoint for a file."""
    made = EndpointConfig(provider="local", model=str(path), local=LocalConfig(**settings))  # type: ignore[arg-type]
    return load(Config(endpoint=(made,))).endpoint[0]


def test_settings_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own template unless another is named; slots, context and threads as given."""
    monkeypatch.setattr(model, "_installed", lambda package: True)
    file = tmp_path / "judge-q4.gguf"
    file.write_bytes(b"GGUF")
    spec = spec_of(local(file, context=8192, slots=3, threads=5))
    assert (spec.path, spec.alias, spec.template) == (str(file), "judge-q4", "")
    assert (spec.slots, spec.context, spec.threads) == (3, 8192, 5)
    assert spec_of(local(file, template="plain")).template == PLAIN_TEMPLATE
    assert spec_of(local(file, template="chatml")).template == "chatml"


def test_what_cannot_run_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, one that is no GGUF, a missing package: before a process is started."""
    monkeypatch.setattr(model, "_installed", lambda package: True)
    with pytest.raises(ConfigError, match=r"nowhere\.gguf.*No such file"):
        spec_of(local(tmp_path / "nowhere.gguf"))
    other = tmp_path / "weights.gguf"
    other.write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match="not a GGUF file"):
        spec_of(local(other))
    monkeypatch.setattr(model, "_installed", lambda package: False)
    with pytest.raises(ConfigError, match=r"xllamacpp.*extra `local`"):
        spec_of(local(other))


@pytest.mark.parametrize("code", ["import os; os.kill(os.getpid(), 9)", "raise MemoryError", "raise SystemExit(3)"])
def test_too_little_memory_is_said(file: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A server that is killed, or cannot allocate, names the settings; one that fails otherwise does not."""
    monkeypatch.setattr(server, "_command", lambda spec: [sys.executable, "-c", code])
    with pytest.raises(ConfigError) as caught:
        shared.use(ServerSpec(str(file), "judge"), TIMEOUT)
    assert ("endpoint.local.context" in str(caught.value)) == ("SystemExit" not in code)
