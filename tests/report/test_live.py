"""The live page over HTTP: its files, who may have them, and what they may do."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.report.test_watch import ledger, lines

from referee.errors import ConfigError
from referee.report import live
from referee.report.live import live_files
from referee.report.live_server import LiveServer
from referee.report.watch import Watch


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """A page of a run with one step."""
    ledger(tmp_path, *lines(0, 1000.0)).close()
    with LiveServer(live_files(Watch(tmp_path))) as made:
        yield made


def get(
    url: str, path: str | None = None, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request(method, parts.path if path is None else path, headers={"host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_the_page_and_its_files_are_served(server: LiveServer) -> None:
    """HTML, style, script and data, none of it cacheable, all of it under a strict policy."""
    for name, kind in (("", "text/html"), ("script.js", "text/javascript"), ("style.css", "text/css")):
        status, headers, body = get(server.url + name)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert headers["cache-control"] == "no-store"
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert body
    status, _, body = get(server.url + "data.json")
    assert status == 200
    assert json.loads(body)["report"]["metrics"]["samples"] == 4


def test_only_its_own_name_opens_it(server: LiveServer) -> None:
    """Other paths, other names and climbing paths find nothing; nor does a page of a foreign host."""
    for path in ("/", "/data.json", "/guess/data.json", server.url[:-2], "//data.json", "/../", "/%2e%2e/x"):
        assert get(server.url, urlsplit(path).path)[0] == 404
    inside = urlsplit(server.url).path
    for name in ("../data.json", "x/data.json", "data.json/", "live.py", "%00", ".."):
        assert get(server.url, inside + name)[0] == 404
    assert get(server.url, host="evil.example:80")[0] == 421
    assert get(server.url, host="localhost:9999")[0] == 200
    assert get(server.url, method="POST")[0] == 501
    assert len(inside.strip("/")) >= 20


def test_the_data_follows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended is there at the next question."""
    monkeypatch.setattr(live, "FRESH", 0.0)
    monkeypatch.setattr(live, "PAUSE_RATIO", 0.0)
    book = ledger(tmp_path)
    with LiveServer(live_files(Watch(tmp_path))) as server:
        assert json.loads(get(server.url + "data.json")[2])["report"]["metrics"]["samples"] == 0
        for each in lines(0, 1000.0):
            book.append(each)
        book.flush()
        assert json.loads(get(server.url + "data.json")[2])["report"]["metrics"]["samples"] == 4
    book.close()


def test_without_plotly_there_are_still_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says why it has no charts, and does not ask for a file that is not there."""
    monkeypatch.setattr(live, "find_spec", lambda name: None)
    files = live_files(Watch(tmp_path))
    assert "plotly.js" not in files
    page = files[""].body().decode()
    assert 'pip install "llm-referee[report]"' in page
    assert "plotly.js" not in page


def test_nothing_but_its_own_files_is_named(tmp_path: Path) -> None:
    """Page, script and style refer to no other host, and put text in no other way than as text."""
    files = live_files(Watch(tmp_path))
    for name in ("", "script.js", "style.css"):
        text = files[name].body().decode()
        assert not re.search(r"https?://|@import|url\(", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
    assert "{{" not in files[""].body().decode()


def test_a_taken_port_is_said(server: LiveServer, tmp_path: Path) -> None:
    """The message names the option."""
    with pytest.raises(ConfigError, match="--port"):
        LiveServer(live_files(Watch(tmp_path)), urlsplit(server.url).port or 0)


def test_the_command_serves_until_interrupted(tmp_path: Path) -> None:
    """`referee watch run/ --page` prints where it is, serves it, and ends with Ctrl-C."""
    command = [sys.executable, "-u", "-m", "referee.cli.main", "watch", str(tmp_path), "--page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.stdout.readline()
        status, _, body = get(url)
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == 0
    assert status == 200
    assert b"referee" in body
