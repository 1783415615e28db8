"""The page as a file: its policy, what is and is not in it, and how it is written. What it does is in test_browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import stat
import zlib
from collections import Counter
from pathlib import Path

import pytest
from tests.report.ledgers import HOSTILE, hostile, make_page, small

from referee.errors import ConfigError, InputError
from referee.ledger import Ledger
from referee.report import index, live, versus_page
from referee.report import page as module
from referee.report.page import SCRIPTS, asset, script

pytest.importorskip("plotly")

SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|createContextualFragment"
    r"|DOMParser|fetch\(|XMLHttpRequest|WebSocket|localStorage|document\.cookie|import\(|setTimeout\(|setInterval\("
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small run."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    make_page(path, small(), "a <title> & more")
    return path


def policy_of(text: str) -> str:
    match = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert match
    return html.unescape(match[1])


def test_the_policy_allows_two_scripts_and_nothing_from_outside(written: Path) -> None:
    """Scripts by digest only: the page's own, and plotly. No inline handlers, no eval, no network."""
    text = written.read_text()
    policy = policy_of(text)
    own = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    packed = re.search(r'id="plotly">([^<]*)<', text)
    assert packed
    plotly = zlib.decompress(base64.b64decode(packed[1]))
    digests = [base64.b64encode(hashlib.sha256(code).digest()).decode() for code in (own.encode(), plotly)]
    assert f"script-src 'sha256-{digests[0]}' 'sha256-{digests[1]}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert "http:" not in policy
    assert "https:" not in policy


def test_data_cannot_end_its_element(written: Path, tmp_path: Path) -> None:
    """What a ledger holds stands in the file as base64 only, whatever it says."""
    bad = tmp_path / "hostile.html"
    make_page(bad, hostile())
    frame = re.compile(r'(<script type="text/plain" id="[a-z0-9_-]+">)[A-Za-z0-9+/=]*(</script>)')
    kinds = []
    for path in (written, bad):
        text = frame.sub(r"\1\2", path.read_text()).replace("<title>test</title>", "").replace("<h1>test</h1>", "")
        text = re.sub(r'<script type="text/plain" id="[^"]*"></script>\n', "", text)
        kinds.append(re.sub(r"<title>.*?</title>|<h1>.*?</h1>", "", text))
        assert "ALARM" not in text
    assert kinds[0] == kinds[1]


def test_the_title_is_text(written: Path) -> None:
    """A folder's name is not markup."""
    assert "<title>a &lt;title&gt; &amp; more</title>" in written.read_text()


def test_data_reads_back(written: Path) -> None:
    """The report in the page is the report."""
    packed = re.search(r'id="report">([^<]*)<', written.read_text())
    assert packed
    assert json.loads(zlib.decompress(base64.b64decode(packed[1])))["metrics"]["samples"] == 24


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_no_way_to_make_text_run(name: str) -> None:
    """No sink that reads markup or code, no network, no timer to lose an event in. One exception: loading plotly."""
    code = re.sub(r"//.*", "", asset(name))
    assert not SINKS.findall(code)
    assert code.count("textContent = source") == (name == "codec.js")
    assert len(asset(name).splitlines()) <= 400


@pytest.mark.parametrize("names", [SCRIPTS, live.SCRIPTS, index.SCRIPTS, versus_page.SCRIPTS])
def test_no_two_scripts_of_a_page_define_the_same_name(names: tuple[str, ...]) -> None:
    """They share one scope: of two functions of one name the later one is called everywhere."""
    found = Counter(re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script(names), re.MULTILINE))
    assert [name for name, count in found.items() if count > 1] == []


def test_the_script_cannot_end_itself() -> None:
    """An inline script must not hold its own end, nor the comment that swallows it."""
    for word in ("</script", "<!--", "<script"):
        assert word not in script().lower()


def test_nothing_is_loaded(written: Path) -> None:
    """The frame refers to no address but its own anchors."""
    frame = asset("frame.html") + asset("page.html")
    assert re.findall(r'(?:src|href)="([^#"][^"]*)"', frame) == ["data:,"]
    assert "url(" not in asset("page.css")
    assert "@import" not in asset("page.css")


def test_the_page_is_private_and_replaces_only_pages(tmp_path: Path) -> None:
    """Rollouts may be secret: 0600. A page may be written again, another file may not be lost."""
    path = tmp_path / "r.html"
    make_page(path, small())
    make_page(path, small())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["r.html"]
    precious = tmp_path / "ledger.jsonl"
    precious.write_text("{}\n")
    with pytest.raises(ConfigError, match="not overwritten"):
        make_page(precious, small())
    assert precious.read_text() == "{}\n"
    with pytest.raises(ConfigError, match="does not exist"):
        make_page(tmp_path / "no" / "r.html", small())


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    """From a folder of ledger files to a page, with a line that says what it is."""
    from referee.cli.report import make_report

    ledger = Ledger(tmp_path / "run")
    for line in [*small(), *hostile()]:
        ledger.append(line)
    ledger.close()
    said = make_report(tmp_path / "run", tmp_path / "r.html")
    assert f"{24 + 2 * len(HOSTILE)} samples" in said
    assert "<title>referee: run</title>" in (tmp_path / "r.html").read_text()
    with pytest.raises(InputError, match="no such ledger"):
        make_report(tmp_path / "nothing", tmp_path / "r.html")


def test_without_plotly_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No traceback, and what to install."""
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match=r'pip install "llm-referee\[report\]"'):
        module.plotly_source()
