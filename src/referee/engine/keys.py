"""Where an endpoint's API key comes from. Read at start; held as a Secret; sent only to the endpoint's own host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from referee.config import EndpointConfig, Secret, is_variable, key_may_travel, looks_like_key
from referee.config.check import LOOPBACK
from referee.errors import MissingKeyError

DEFAULT_VARIABLE = "OPENAI_API_KEY"


def find_key(endpoint: EndpointConfig, env: Mapping[str, str] | None = None) -> Secret | None:
    """The key to send, None if none is wanted, MissingKeyError if one is wanted and not there."""
    env = os.environ if env is None else env
    if (endpoint.api_key is not None or endpoint.key_file) and not key_may_travel(endpoint):
        raise MissingKeyError(
            f"endpoint {endpoint.label}: the key would travel unencrypted. Use https, or key_over_http = true if the "
            "network in between is yours. Nothing was sent.",
            setting="endpoint.url",
        )
    if endpoint.api_key is not None:
        return _usable(endpoint.api_key.reveal(), endpoint, "api_key")
    if endpoint.key_file:
        path = Path(endpoint.key_file).expanduser().absolute()
        shown = "(not shown: it looks like a key itself)" if looks_like_key(path.name) else repr(str(path))
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise MissingKeyError(
                f"endpoint {endpoint.label}: cannot read the key from key_file = {shown} "
                f"({type(error).__name__}). Nothing was sent.",
                setting="endpoint.key_file",
            ) from None
        return _usable(text.strip(), endpoint, f"key_file = {shown}")
    if not endpoint.key_env or not key_may_travel(endpoint):
        return None
    if not is_variable(endpoint.key_env):
        raise MissingKeyError(
            f"endpoint {endpoint.label}: key_env must be the name of an environment variable, and not the key itself; "
            "what is there now is not shown. Nothing was sent.",
            setting="endpoint.key_env",
        )
    text = env.get(endpoint.key_env, "").strip()
    if text:
        return _usable(text, endpoint, f"the environment variable {endpoint.key_env}")
    if endpoint.key_env == DEFAULT_VARIABLE and urlsplit(endpoint.url).hostname in LOOPBACK:
        return None  # local servers usually need no key
    raise MissingKeyError(
        f"endpoint {endpoint.label}: no API key: the environment variable {endpoint.key_env} is not set. Set it, or "
        'name another with key_env, or give key_file; key_env = "" if the endpoint needs no key. Nothing was sent.',
        setting="endpoint.key_env",
    )


def _usable(text: str, endpoint: EndpointConfig, where: str) -> Secret:
    """A key travels in a header: white space or control characters inside would break or split it."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise MissingKeyError(
            f"endpoint {endpoint.label}: the key in {where} is empty or has characters a header cannot hold "
            "(is it the whole key, on one line?). Nothing was sent.",
            setting="endpoint.key_env",
        )
    return Secret(text)
