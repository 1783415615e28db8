"""Whatever is given: a configuration, or an error of ours that names it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from referee.config import Config, load
from referee.errors import ConfigError


def names(struct: Any) -> list[str]:
    return [field.name for field in msgspec.structs.fields(struct)]


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=3),
    st.sampled_from(["auto", "score", "http://x", "http://[", "https://a:b@c", "value", "default", "\ud800"]),
)
SETTINGS = sorted(section.name for section in msgspec.structs.fields(Config))
DEEP = sorted(
    {
        name
        for field in msgspec.structs.fields(Config)
        for name in (
            names(field.type)
            if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
            else ["url", "model", "proxy", "extra", "price_in"]
        )
    }
    | {"enable", "empty", "peak_ratio", "outer_ratio"}
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.one_of(st.sampled_from(DEEP), st.integers(0, 3), st.text(max_size=3)), inner, max_size=3),
    ),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.one_of(st.sampled_from(SETTINGS), st.text(max_size=3)), VALUES, max_size=3)
VARIABLES = st.dictionaries(
    st.tuples(st.sampled_from(SETTINGS), st.sampled_from(["", *DEEP])).map(
        lambda pair: "REFEREE_" + "_".join(filter(None, pair)).upper()
    ),
    st.one_of(st.text(max_size=8), st.sampled_from(["5", "nan", "true", "[1]", "{a=1}", "1e999", "\udcff"])),
    max_size=2,
)


@given(source=MAPPINGS, env=VARIABLES)
@example(source={"judge": {"criteria": "\ud800"}}, env={})
@example(source={"endpoint": {"extra": {"x": b"\xff", "y": 10**30}}}, env={})
@example(source={"endpoint": {"extra": {"x": object()}}}, env={})
@example(source={"endpoint": {"url": "http://a:99999999/v1"}}, env={})
@settings(deadline=None, max_examples=400)
def test_anything_loads_or_is_a_config_error(source: Any, env: dict[str, str]) -> None:
    """Arbitrary input is a configuration that can be shown and named, or a ConfigError, and nothing else."""
    try:
        config = load(source, env)
    except ConfigError:
        return
    assert config.digest()
    assert config.public()
    assert repr(config)
    assert load(config) is config
    for endpoint in config.endpoint:
        assert endpoint.label


@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
@settings(deadline=None, max_examples=150)
def test_any_bytes_load_or_are_a_config_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """A file of anything is a configuration or a ConfigError."""
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(content)
    try:
        load(path)
    except ConfigError:
        return
