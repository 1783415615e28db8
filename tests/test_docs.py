"""Documents made from code are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "cli.md"])
def test_generated_documents_are_current(name: str) -> None:
    """What `python docs/generate.py` would write is what is there."""
    assert (DOCS / name).read_text(encoding="utf-8") == generator().DOCUMENTS[name](), "run: python docs/generate.py"
