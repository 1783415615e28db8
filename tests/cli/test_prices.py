"""`referee prices`, and what doctor says of providers and prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from referee.cli.main import app
from referee.config import PROVIDERS, price_table


def run(*arguments: str, columns: int = 200) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)})
    return found.exit_code, found.stdout, found.stderr


def test_all_of_it_is_listed() -> None:
    """Every provider, every model, and the date."""
    code, out, _ = run("prices")
    assert code == 0
    assert all(name in out for name in PROVIDERS)
    assert all(model in out for listed in price_table().providers.values() for model in listed.models)
    assert price_table().date in out


def test_nothing_is_broken_in_two_at_80_columns() -> None:
    """Addresses and names of models stand whole, in lines that fit."""
    _, out, _ = run("prices", columns=80)
    assert max(map(len, out.splitlines())) <= 80
    words = set(out.split())
    assert {known.url for known in PROVIDERS.values() if known.url and known.key_env} <= words
    assert {model for listed in price_table().providers.values() for model in listed.models} <= words


def test_one_model_with_its_date_is_its_family() -> None:
    """And nothing else is shown."""
    code, out, _ = run("prices", "gpt-4o-mini-2024-07-18")
    assert code == 0
    assert "0.15" in out
    assert "gpt-4.1" not in out
    assert price_table().providers["openai"].source in out


def test_a_part_of_a_name_finds_all_that_hold_it() -> None:
    """Of every provider."""
    _, out, _ = run("prices", "GPT-OSS")
    assert {"groq", "together", "fireworks"} <= {line.split()[0] for line in out.splitlines() if line.strip()}


def test_an_unknown_model_says_what_to_set() -> None:
    """With exit status 1, also as data."""
    code, out, err = run("prices", "unheard-of")
    assert (code, out) == (1, "")
    assert "endpoint.price_in" in err
    code, out, _ = run("prices", "unheard-of", "--json")
    assert code == 1
    assert json.loads(out)["prices"] == {}


def test_as_data() -> None:
    """The same in JSON."""
    _, out, _ = run("prices", "gpt-4o-mini", "--json")
    data = json.loads(out)
    assert data["date"] == price_table().date
    assert data["prices"]["openai"]["gpt-4o-mini"]["in"] == 0.15
    assert data["providers"]["anthropic"]["key_env"] == "ANTHROPIC_API_KEY"


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ('provider = "openai"', ["$0.15 in, $0.6 out", "table of", "`referee docs providers/openai`"]),
        (
            'provider = "qianfan"\nmodel = "deepseek-v3"',
            ["no price is known for deepseek-v3", "providers/qianfan"],
        ),
        ('provider = "openai"\nprice_in = 9.0\nprice_out = 9.0', ["$9 in, $9 out per million tokens\n"]),
    ],
)
def test_doctor_says_where_prices_are_from(tmp_path: Path, endpoint: str, words: list[str]) -> None:
    """The table, the configuration, or nowhere; and which page helps."""
    file = tmp_path / "referee.toml"
    file.write_text(f"[endpoint]\n{endpoint}\n[cache]\npath = ''\n")
    env = {"OPENAI_API_KEY": "sk-x", "QIANFAN_API_KEY": "sk-x", "COLUMNS": "200"}
    found = CliRunner().invoke(app, ["doctor", "--offline", "-c", str(file)], env=env)
    assert found.exit_code == 0
    assert all(word in found.stdout for word in words)
