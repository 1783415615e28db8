"""`referee docs`: every page can be opened by its name, searched, and read in a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run, environment

from referee.cli.docs import pages, text_of
from referee.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs"


def test_without_a_name_it_lists_the_pages(referee: Run) -> None:
    """Each in a line of at most 80 characters, with a sentence; what is listed can be opened."""
    lines = referee("docs", COLUMNS="80").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    listed = dict(re.findall(r"^  (\S+) +(\S.+)$", "\n".join(lines), re.M))
    assert len(listed) > 40
    assert all(text_of(name)[0] == name for name in listed)
    top = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert top <= listed.keys(), "docs/index.md has no line for these"


def test_into_a_pipe_a_page_is_its_markdown(referee: Run) -> None:
    """Nothing is wrapped or coloured, and names are taken as people write them."""
    page = (DOCS / "trainers" / "trl.md").read_text()
    for name in ("trainers/trl", "TRL", "docs/trainers/trl.md"):
        assert referee("docs", name, COLUMNS="40").stdout == page
    assert referee("docs", "providers").stdout == (DOCS / "providers" / "README.md").read_text()


def test_a_section_is_shown_alone() -> None:
    """From its heading to the next of its level; a comment in a code block is no heading."""
    _, text = text_of("judging#several-judges")
    assert text.startswith("## Several judges\n")
    assert "\n## " not in text
    assert "\n## " in text_of("judging#judging")[1]


@pytest.mark.parametrize(
    ("args", "said"),
    [(["jugding"], "Did you mean judging?"), (["trust#lies"], "It has: "), (["--search", "xyzzy"], "'xyzzy'")],
)
def test_what_is_not_there_is_said(referee: Run, args: list[str], said: str) -> None:
    """With what is near it, and status 2."""
    done = referee("docs", *args)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_search_says_where_each_line_stands(referee: Run) -> None:
    """In any case of letters, with the section as the command takes it."""
    done = referee("docs", "--search", "retry-AFTER")
    for line in done.stdout.splitlines():
        where, _, text = line.partition(": ")
        assert text in text_of(where)[1]
        assert "retry-after" in text.lower()
    assert done.stdout


def test_in_a_terminal_a_page_is_formatted_and_its_links_can_be_typed() -> None:
    """Links between pages show the name that `referee docs` takes; a picture shows what it is of."""
    here, there = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-m", "referee.cli.main", "docs", "report"],
        stdin=there,
        stdout=there,
        env=environment(PAGER="cat", TERM="xterm", COLUMNS="200"),
    ) as process:
        os.close(there)
        try:
            while part := os.read(here, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(here)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert process.returncode == 0
    assert "\x1b[" in shown.decode()
    assert "## " not in text
    assert "](" not in text
    assert "(picture: " in text
    linked = set(re.findall(r" \(([\w/#.-]+)\)", text)) & set(pages())
    assert linked
    with pytest.raises(ConfigError):
        text_of("report#no-such-section")
