"""LengthPenaltyConfig: the user's keys, and what they mean in referee's own settings. Data only."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal
from urllib.parse import urlsplit

from referee.config import Secret
from referee.config.check import LOOPBACK
from referee.errors import ConfigError, MissingKeyError, RefereeError, nearest

ENDPOINT = "https://qianfan.baidubce.com/v2/chat/completions"
MODEL = "deepseek-v3"
KEY_VARIABLE = "OPENAI_API_KEY"
"""Where a key is looked for that did not travel with a pickled configuration, unless `api_key_env` says otherwise."""

Mode = Literal["thread", "processes", "inline"]


class _Default(int):
    """A default that can be told from the same number given explicitly."""


@dataclass(repr=False)
class LengthPenaltyConfig:
    """Settings of `LengthPenaltyRewardManager`. The same keys work in a mapping or an OmegaConf node."""

    enable: bool = False
    """Apply the length penalty."""
    penalty_scale: float = 1.0
    """Factor on the penalty."""
    max_penalty: float = 1.0
    """The penalty's plateau."""
    peak_ratio: float = 0.3
    """Half-width of the free zone around the group's median length."""
    outer_ratio: float = 0.5
    """Where the plateau starts; must exceed peak_ratio."""
    enable_openai_reward: bool | None = None
    """Ask the judge at all. Unset: if there is a key."""
    api_key: str | None = None
    """The judge's key. Better: `api_key_env`."""
    model_name: str = MODEL
    api_endpoint: str = ENDPOINT
    """Any OpenAI-compatible chat-completions URL."""
    reward_coefficient: float = 1.0
    """Weight of the judge's score, which is an integer from 1 to 10."""
    use_async_io: bool = False
    """Overlap judge calls on a background event loop. False: plainly synchronous, unless num_async_workers is given."""
    max_concurrent_requests: int = 10
    """Ceiling on calls in flight."""
    num_async_workers: int = _Default(4)
    """Worker processes. Given explicitly, and without use_async_io, judging runs in that many processes."""
    system_prompt: str = ""
    """What the judge is told. It must ask for one integer from 1 to 10 and nothing else. Empty: the shipped one."""
    api_key_env: str = ""
    """Environment variable that holds the key, so that the key itself stands in no configuration."""
    referee: Mapping[str, Any] = field(default_factory=dict)
    """More settings under referee's own names: {"cache": {...}, "ledger": {...}, "missing": {...}, "limits": {...}}."""

    def __post_init__(self) -> None:
        self._key_left_behind = False
        for name in ("enable", "use_async_io"):
            self._check(name, isinstance(getattr(self, name), bool), "true or false")
        asks = self.enable_openai_reward
        self._check("enable_openai_reward", asks is None or isinstance(asks, bool), "true or false")
        for name in ("penalty_scale", "max_penalty", "peak_ratio", "outer_ratio", "reward_coefficient"):
            self._check(name, _is_number(getattr(self, name)), "a finite number")
        for name in ("max_concurrent_requests", "num_async_workers"):
            count = getattr(self, name)
            self._check(
                name, isinstance(count, int) and not isinstance(count, bool) and count >= 1, "a whole number >= 1"
            )
        for name in ("model_name", "api_endpoint", "system_prompt", "api_key_env"):
            self._check(name, isinstance(getattr(self, name), str), "text")
        if self.api_key is not None and not isinstance(self.api_key, str):
            raise ConfigError("length_penalty_config.api_key: must be text.", setting="api_key")
        if not 0 <= self.peak_ratio < self.outer_ratio:
            raise ConfigError(
                f"length_penalty_config: outer_ratio ({self.outer_ratio}) must exceed peak_ratio ({self.peak_ratio}), "
                "and peak_ratio must be at least 0: the penalty grows between the two.",
                setting="outer_ratio",
            )
        if asks is None:
            # A named variable asks for a judge: one that is not set is an error, and not a run without a judge.
            self.enable_openai_reward = bool(self.api_key or self.api_key_env)

    @classmethod
    def of(cls, source: Any) -> LengthPenaltyConfig:
        """From None, a LengthPenaltyConfig, a mapping, an OmegaConf node, or any object with these attributes."""
        if source is None:
            return cls()
        if isinstance(source, cls):
            return source
        known = [item.name for item in fields(cls)]
        if isinstance(source, Mapping):
            given = {str(name): source[name] for name in source if name != "_target_"}
            for name in given:
                if name not in known:
                    hint = nearest(name, known, "`")
                    raise ConfigError(f"length_penalty_config: unknown key `{name}`.{hint}", setting=name)
        else:
            given = {name: getattr(source, name) for name in known if hasattr(source, name)}
            if not given:
                raise ConfigError(
                    f"length_penalty_config: {type(source).__name__} has none of its keys ({', '.join(known)}).",
                    setting="length_penalty_config",
                )
        # A key that is spelled out as null means: as if it were not there.
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def judges(self) -> bool:
        """True if the judge is asked at all."""
        return bool(self.enable_openai_reward)

    @property
    def mode(self) -> Mode:
        """Where judging runs: the event loop, worker processes, or the caller's own thread."""
        if self.use_async_io:
            return "thread"
        return "inline" if isinstance(self.num_async_workers, _Default) else "processes"

    def settings(self, mode: Mode, keyless: bool = False) -> dict[str, Any]:
        """The same as referee's settings, for a judge that runs in this mode. `keyless`: one that is never asked."""
        endpoint: dict[str, Any] = {"url": self.api_endpoint, "model": self.model_name}
        key = "" if keyless else self._key()
        if key:
            endpoint["api_key"] = Secret(key)
        else:
            endpoint["key_env"] = ""
        settings: dict[str, Any] = {
            "judge": {
                "kind": "integer",
                "system_prompt": self.system_prompt,
                "reply": "text",
                "view": "full",
                "parts": "describe",  # the judge is shown the response, so an image in the prompt does not concern it
                "ask_above": 0.0,
                "gates": {"echo": "off", "no_alphanumerics": "off", "truncated": "off"},
            },
            "endpoint": endpoint,
            "limits": {"max_concurrency": self.max_concurrent_requests},
            "shaping": self.shaping(),
            "missing": {"policy": "group_mean"},
            "runtime": mode,
        }
        if mode == "processes":
            settings["workers"] = int(self.num_async_workers)
        return merged(settings, self.referee)

    def shaping(self) -> dict[str, Any]:
        """The [shaping] section."""
        length = {name: getattr(self, name) for name in ("penalty_scale", "max_penalty", "peak_ratio", "outer_ratio")}
        return {
            "coefficient": self.reward_coefficient,
            "scale": "native",
            "length": {"enable": self.enable, **length},
        }

    def _key(self) -> str:
        """The key to send; empty if a server on this machine is asked without one."""
        variable = self.api_key_env or (KEY_VARIABLE if self._key_left_behind else "")
        key = (self.api_key or (os.environ.get(variable, "") if variable else "")).strip()
        endpoint = self.referee.get("endpoint")
        keyless = isinstance(endpoint, Mapping) and endpoint.get("key_env") == ""
        if key or ((keyless or urlsplit(self.api_endpoint).hostname in LOOPBACK) and not variable):
            return key
        why = f"the environment variable {variable} is not set" if variable else "api_key is not given"
        if self._key_left_behind:
            why += " here, and a key given in Python does not travel in pickles"
        raise MissingKeyError(
            f"length_penalty_config: no API key for {urlsplit(self.api_endpoint).netloc}: {why}. Set api_key_env to "
            "the name of a variable that holds it, or enable_openai_reward to false for the length penalty alone, or "
            'referee={"endpoint": {"key_env": ""}} if that judge needs no key. Nothing was sent.',
            setting="api_key",
        )

    def _check(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            shown = repr(getattr(self, name)) if name != "api_key" else "that"
            raise ConfigError(f"length_penalty_config.{name}: must be {wanted}, not {shown}.", setting=name)

    def __repr__(self) -> str:
        shown = ((item.name, getattr(self, item.name)) for item in fields(self))
        parts = (f"{name}={'***' if name == 'api_key' and value else repr(value)}" for name, value in shown)
        return f"LengthPenaltyConfig({', '.join(parts)})"

    def __getstate__(self) -> dict[str, Any]:
        left_behind = self._key_left_behind or bool(self.api_key)
        return {**self.__dict__, "api_key": None, "_key_left_behind": left_behind, "referee": dict(self.referee)}

    def __deepcopy__(self, memo: dict[int, Any]) -> LengthPenaltyConfig:
        return self.__copy__()

    def __copy__(self) -> LengthPenaltyConfig:
        copied = object.__new__(LengthPenaltyConfig)
        copied.__dict__.update(self.__dict__)  # within a process the key stays
        return copied


_OWN_KEYS = {
    "endpoint.key_env or endpoint.key_file": "api_key or api_key_env",
    "endpoint.key_env": "api_key",
    'key_env = ""': 'referee={"endpoint": {"key_env": ""}}',
    "key_over_http = true": 'referee={"endpoint": {"key_over_http": True}}',
    "endpoint.url": "api_endpoint",
    "endpoint.model": "model_name",
    "endpoint[0].url": "api_endpoint",
    "endpoint[0].model": "model_name",
    "limits.max_concurrency": "max_concurrent_requests",
    "shaping.coefficient": "reward_coefficient",
    "shaping.length.": "",
}
"""referee's names of settings in messages, and the keys they were written as."""


@contextlib.contextmanager
def in_own_keys() -> Iterator[None]:
    """Errors raised inside name the keys of LengthPenaltyConfig."""
    try:
        yield
    except RefereeError as error:
        text = str(error)
        for name, key in _OWN_KEYS.items():
            text = text.replace(name, key)
        error.args = (text, *error.args[1:])
        if isinstance(error, ConfigError):
            error.setting = _OWN_KEYS.get(error.setting, error.setting)
        raise


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings, where `over` wins key by key."""
    result = dict(base)
    for name, value in over.items():
        below = result.get(name)
        result[name] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
