"""Configurations as trainers hand them over: made plain, and told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from referee.config import Config, Secret


def identity(config: Config) -> str:
    """Equal for configurations that may share a Referee; keys given in Python count, without being kept."""

    def digest(value: Any) -> str:
        assert isinstance(value, Secret)
        return hashlib.sha256(value.reveal().encode()).hexdigest()

    return hashlib.sha256(msgspec.json.encode(config, enc_hook=digest, order="sorted")).hexdigest()


def plain(value: Any) -> Any:
    """Mappings and lists of any make (OmegaConf nodes too) as dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value
