"""Settings as they are sent to a Ray engine, sealed, and the name an engine has from them.

An engine is named after its settings, so that clients with equal settings share it. Keys are not among an actor's
arguments, which Ray stores: an engine looks for them where it runs, and asks its clients for what is missing.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee.config import AuditConfig, Config, Secret, all_judges, change_judges
from referee.config.schema import LedgerConfig, MissingConfig, ServeConfig, ShapingConfig
from referee.engine import find_key
from referee.errors import MissingKeyError
from referee.runtime.messages import pack_config, unpack_config
from referee.scoring.build import read_template
from referee.version import VERSION

PROTOCOL = 1
"""Incremented when messages between client and engine change within one version."""


class Sealed:
    """Bytes that do not show: not in repr, and not as they are in a memory dump, a spilled object or a log."""

    __slots__ = ("_data", "_pad")

    def __init__(self, data: bytes, pad: bytes = b"") -> None:
        self._pad = pad or os.urandom(len(data))
        self._data = data if pad else _mixed(data, self._pad)

    def open(self) -> bytes:
        """The bytes."""
        return _mixed(self._data, self._pad)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sealed, (self._data, self._pad)

    def __repr__(self) -> str:
        return "Sealed(***)"


class Settings(Struct, frozen=True, array_like=True):
    """Everything an engine needs, its key perhaps excepted."""

    config: bytes
    """From `pack_config`."""
    templates: dict[str, str]
    """The text of each judge.prompt_file, which may not be where the engine runs."""


def far_config(config: Config) -> Config:
    """The settings that an engine goes by; what concerns whole batches and their records stays with the client."""
    path = config.cache.path
    return replace(
        config,
        judge=tuple(replace(judge, weight=1.0, optional=judge.optional or judge.weight == 0) for judge in config.judge),
        shaping=ShapingConfig(),
        missing=MissingConfig(),
        audit=AuditConfig(),
        ledger=LedgerConfig(),
        serve=ServeConfig(),
        cache=replace(config.cache, path=_absolute(path)),
        endpoint=tuple(replace(e, api_key=None, key_file=_absolute(e.key_file)) for e in config.endpoint),
        # One engine shares limits with other jobs as a thread does; of several, each as a worker of its job.
        runtime="thread" if config.shards == 1 else "ray",
        shards=1,
        ray_address="",
    )


def seal(config: Config, with_keys: bool) -> Sealed:
    """The settings, for an engine. With keys only where it has asked for them."""
    far = far_config(config)
    if with_keys:
        keys = [find_key(endpoint) for endpoint in config.endpoint]
        far = replace(far, endpoint=tuple(replace(e, api_key=k) for e, k in zip(far.endpoint, keys, strict=True)))
    return Sealed(msgspec.msgpack.encode(Settings(pack_config(far), _templates(config))))


def unseal(sealed: Sealed, tag: str) -> Config | None:
    """The settings where the engine runs, keys included. None: its keys are not here, they must be sent along."""
    settings = msgspec.msgpack.decode(sealed.open(), type=Settings)
    config = unpack_config(settings.config)
    try:
        keys = [find_key(endpoint) for endpoint in config.endpoint]
    except MissingKeyError:
        return None
    if key_tag(keys) != tag:
        return None  # there is a key, and it is another one
    config = replace(config, endpoint=tuple(replace(e, api_key=k) for e, k in zip(config.endpoint, keys, strict=True)))
    files = {name: _kept(text) for name, text in settings.templates.items()}
    return replace(
        config,
        judge=change_judges(
            config.judge, lambda judge: replace(judge, prompt_file=files.get(judge.prompt_file, judge.prompt_file))
        ),
    )


def key_tag(keys: list[Secret | None]) -> str:
    """Differs for keys of different accounts, which have limits of their own. 24 bits: too few to guess a key by."""
    if not any(keys):
        return "0"
    text = "\0".join(key.reveal() if key is not None else "" for key in keys)
    return hashlib.blake2b(text.encode(), digest_size=3, person=b"referee").hexdigest()


def engine_digest(config: Config) -> str:
    """A short name for what an engine goes by; equal settings give equal digests."""
    text = [far_config(config).digest(), *_templates(config).values(), str(config.shards), str(PROTOCOL)]
    return hashlib.sha256("\0".join(text).encode("utf-8", "replace")).hexdigest()[:16]


def engine_names(config: Config, own: str = "") -> list[str]:
    """The actors' names, one for each shard. `own` keeps one client's engines apart from all others."""
    tag = key_tag([find_key(endpoint) for endpoint in config.endpoint])
    base = f"referee-{VERSION}-{engine_digest(config)}-{tag}{own}"
    return [f"{base}-{rank}of{config.shards}" for rank in range(config.shards)]


def broker_name(engine: str) -> str:
    """The actor that divides the limits among the engines of this name."""
    return f"{engine.rpartition('-')[0]}-limits"


def _absolute(path: str) -> str:
    """A path as the client means it. On another machine it may name nothing, or that machine's own disk."""
    return str(Path(path).expanduser().absolute()) if path else ""


def _templates(config: Config) -> dict[str, str]:
    """The text of every prompt_file, by its name, also of judges that others use."""
    files = {judge.prompt_file: read_template(judge) for judge in all_judges(config.judge)}
    return {name: text for name, text in files.items() if text is not None}


def _kept(text: str) -> str:
    """A file with this text, for this process only."""
    handle, name = tempfile.mkstemp(prefix="referee-template-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def _mixed(data: bytes, pad: bytes) -> bytes:
    return (int.from_bytes(data) ^ int.from_bytes(pad)).to_bytes(len(data))
