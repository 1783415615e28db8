"""Loads a Config from a TOML file or a mapping, and the environment.

Unknown keys are refused with the nearest known name. Environment variables override keys: `REFEREE_LIMITS_RPM=500`
is `[limits] rpm`, `REFEREE_ENDPOINT_MODEL` the first endpoint's model.

Files that are read (judge.prompt_file and rubric_file, endpoint.key_file, a local model, redis.ca_file, audit.canaries)
become absolute here: relative to the TOML file that names them, elsewhere to the current directory, which a launcher
may change later.
"""

from __future__ import annotations

import contextlib
import difflib
import operator
import os
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from referee.config.apis import with_free_replies
from referee.config.audit_schema import take_shadow
from referee.config.check import check
from referee.config.judge_schema import JudgeConfig
from referee.config.judges import all_judges, api_of, change_all, with_uses
from referee.config.keys import find_key, looks_like_key
from referee.config.providers import LOCAL, LOCAL_MODEL
from referee.config.resolve import resolved
from referee.config.schema import LONE, Config, EndpointConfig, Secret
from referee.errors import ConfigError, Refuse, nearest

ENV_PREFIX = "REFEREE_"
KUBERNETES = ("REFEREE_SERVICE_HOST", "REFEREE_SERVICE_PORT")
"""What pods are told of a Service that is called referee: no settings of ours."""
URL_VARIABLE = f"{ENV_PREFIX}ENDPOINT_URL"
FILES = {
    "judge": ("prompt_file", "rubric_file"),
    "endpoint": ("key_file",),
    "redis": ("ca_file",),
    "audit": ("canaries",),
}
"""Settings that name a file to be read, by section."""
MAX_SHOWN_CHARS = 60
"""Of a variable's value, in an error."""


def load(source: str | Path | Mapping[str, Any] | Config, env: Mapping[str, str] | None = None) -> Config:
    """Read a TOML file or a mapping, apply overrides from the environment, validate.

    A Config is only validated: overrides must not undo what was changed in it since it was read.
    """
    if isinstance(source, Config):
        return _complete(source, "the configuration", None)
    data: dict[str, Any]
    if isinstance(source, Mapping):
        data = {str(key): dict(value) if isinstance(value, Mapping) else value for key, value in source.items()}
        where = "the configuration"
    else:
        data = _read_toml(Path(source))
        where = str(source)
    data["endpoint"] = _tables(data, "endpoint", where)
    data["judge"] = _tables(data, "judge", where)
    data["team"] = _tables(data, "team", where)
    if not isinstance(source, Mapping):
        _refuse_keys(data["endpoint"], where)
        _locate(data, Path(source).expanduser().absolute().parent)
    if env:
        _apply_environment(data, env)
    _locate(data, "")
    for name in ("endpoint", "judge", "team"):
        if not data[name]:
            del data[name]
    _refuse_unknown(data, Config, "", where)
    try:
        config = msgspec.convert(data, Config, strict=True, dec_hook=_decode)
    except msgspec.ValidationError as error:
        problem = _plain(error) if len(data.get("judge", ())) > 1 else _plain(error).replace("judge[0]", "judge", 1)
        raise ConfigError(f"{where}: {problem}{_choices(error)}") from None
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: half a character (lone surrogate) in {error.object[:40]!r}.") from None
    return _complete(config, where, [frozenset(endpoint) for endpoint in data.get("endpoint", ())])


def anchored(config: Config) -> Config:
    """The same with every path absolute by the current directory, which launchers change later.

    `load` leaves `cache.path` and `ledger.dir` as written: processes of one job that start in different folders must
    agree on the digest of their settings.
    """
    change = msgspec.structs.replace
    whole = change_all(
        config,
        lambda judge: change(judge, prompt_file=_absolute(judge.prompt_file), rubric_file=_absolute(judge.rubric_file)),
    )
    return change(
        whole,
        audit=change(whole.audit, canaries=_absolute(config.audit.canaries)),
        endpoint=tuple(
            change(endpoint, key_file=_absolute(endpoint.key_file), model=_model(endpoint))
            for endpoint in config.endpoint
        ),
        cache=change(config.cache, path=_absolute(config.cache.path)),
        redis=change(config.redis, ca_file=_absolute(config.redis.ca_file)),
        ledger=change(config.ledger, dir=config.ledger.dir and _absolute(config.ledger.dir)),
        serve=change(config.serve, state=_absolute(config.serve.state)) if config.team else config.serve,
    )


def _absolute(path: str, folder: Path | str = "") -> str:
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path))) if path else ""


def _model(endpoint: EndpointConfig) -> str:
    named = endpoint.provider == LOCAL and endpoint.model != LOCAL_MODEL
    return _absolute(endpoint.model) if named else endpoint.model


def _complete(config: Config, where: str, written: Sequence[Collection[str]] | None) -> Config:
    """`written`: the keys of each endpoint that were given, where that is known."""

    def refuse(setting: str, problem: str) -> ConfigError:
        return ConfigError(f"{where}: {setting}: {problem}", setting=setting)

    endpoints = tuple(
        resolved(endpoint, written[number] if written else None, f"endpoint[{number}]", refuse)
        for number, endpoint in enumerate(config.endpoint)
    )
    if any(map(operator.is_not, endpoints, config.endpoint)):
        config = msgspec.structs.replace(config, endpoint=endpoints)
    whole = with_uses(_with_unique_labels(_with_judge_name(config)), refuse)
    judges, audit = take_shadow(whole.judge, whole.audit, refuse)
    if audit is not whole.audit:
        whole = msgspec.structs.replace(whole, judge=judges, audit=audit)
    whole = _with_apis(whole, refuse)
    check(whole, refuse)
    return whole


def _with_apis(config: Config, refuse: Refuse) -> Config:
    """The same with what follows from endpoints that generate no text."""
    apis = {judge.name: api_of(judge, config.endpoint, refuse) for judge in all_judges(config.known_judges)}
    if not any(apis.values()):
        return config
    return msgspec.structs.replace(
        change_all(config, lambda judge: msgspec.structs.replace(judge, api=apis[judge.name])),
        endpoint=tuple(with_free_replies(endpoint) for endpoint in config.endpoint),
    )


def _with_judge_name(config: Config) -> Config:
    """A single judge gets the default name; in Python it need not be in a tuple."""
    if isinstance(config.judge, JudgeConfig):
        config = msgspec.structs.replace(config, judge=(config.judge,))
    if len(config.judge) != 1 or config.judge[0].name:
        return config
    return msgspec.structs.replace(config, judge=(msgspec.structs.replace(config.judge[0], name=LONE),))


def _with_unique_labels(config: Config) -> Config:
    """Unnamed endpoints on the same host get names, or records would merge them."""
    hosts = Counter(endpoint.label for endpoint in config.endpoint)
    if max(hosts.values(), default=0) < 2:
        return config
    found: list[EndpointConfig] = []
    for endpoint in config.endpoint:
        if not endpoint.name and hosts[endpoint.label] > 1:
            name = f"{endpoint.host}/{endpoint.model}"
            taken = sum(other.name.partition("#")[0] == name for other in found)
            endpoint = msgspec.structs.replace(endpoint, name=f"{name}#{taken + 1}" if taken else name)
        found.append(endpoint)
    return msgspec.structs.replace(config, endpoint=tuple(found))


def _read_toml(path: Path) -> dict[str, Any]:
    text = ""
    try:
        # Windows editors write a byte order mark, which is not TOML.
        text = path.read_text(encoding="utf-8-sig")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. `referee init` writes a commented starter.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}{_twice(text)}") from None


def _twice(text: str) -> str:
    """What to write instead where a section that may be there several times has single brackets and is not alone."""
    for name in ("judge", "endpoint", "team"):
        found = re.findall(rf"^\s*(\[\[?)\s*{name}\s*\]", text, re.MULTILINE)
        if len(found) > 1 and "[" in found:
            return f". Of several sections [{name}], write each as [[{name}]]."
    return ""


def _refuse_keys(endpoints: list[dict[str, Any]], where: str) -> None:
    for number, endpoint in enumerate(endpoints):
        if "api_key" in endpoint:
            raise ConfigError(
                f"{where}: endpoint[{number}].api_key: a key does not belong in a file. Put it in an environment "
                "variable and name that in key_env, or in a file of its own named in key_file.",
                setting="endpoint.api_key",
            )
        field = find_key(endpoint.get("extra"))
        if field is not None:
            raise ConfigError(
                f"{where}: endpoint[{number}].extra.{field}: a key does not belong in a file. The key that key_env or "
                "key_file names is sent as a bearer token; one that must be in the body can only be given from Python.",
                setting="endpoint.extra",
            )


def _locate(data: dict[str, Any], folder: Path | str) -> None:
    """Make file paths in `data` absolute. Wrong types are refused later."""
    for section, names in FILES.items():
        tables = data.get(section, [])
        for table in tables if isinstance(tables, list) else [tables]:
            local = section == "endpoint" and table.get("provider") == LOCAL and table.get("model") != LOCAL_MODEL
            for name in (*names, "model") if local else names:
                if isinstance(table, dict) and isinstance(table.get(name), str):
                    table[name] = _absolute(table[name], folder)


def _tables(data: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """Remove one table or several from `data`, as a list."""
    given = data.pop(name, [])
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, list | tuple) or not all(isinstance(item, Mapping) for item in given):
        raise ConfigError(f"{where}: {name} must be a table [{name}] or tables [[{name}]].", setting=name)
    return [dict(item) for item in given]


def _decode(kind: type, value: Any) -> Any:
    if kind is Secret and isinstance(value, Secret):
        return value
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    if kind is Secret:
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    raise NotImplementedError(kind)


def _plain(error: msgspec.ValidationError) -> str:
    text = str(error)
    what, _, path = text.partition(" - at `$")
    path, what = path.rstrip("`").lstrip("."), what.replace(" | null", "")  # TOML has none
    return f"{path}: {what[0].lower()}{what[1:]}" if path else what


def _choices(error: msgspec.ValidationError) -> str:
    """The allowed values of an enumerated setting."""
    what, _, path = str(error).partition(" - at `$.")
    if "enum value" not in what:
        return ""
    kind: Any = Config
    for name in re.sub(r"\[[^]]*\]", "", path.rstrip("`")).split("."):
        kind = _kinds(_struct_of(kind) or Config).get(name)
    return _words(kind)


def _words(kind: Any) -> str:
    parts = [part for inner in get_args(kind) for part in get_args(inner) or (inner,)]
    words = [part for part in parts if isinstance(part, str)]
    number = ["a number"] if {int, float} & {part for part in parts if isinstance(part, type)} else []
    return f". It is one of: {', '.join(number + words)}." if words else ""


def _struct_of(kind: Any) -> type[Struct] | None:
    """The Struct in a field's type: itself, or the item type of a tuple."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    for inner in getattr(kind, "__args__", ()):
        found = _struct_of(inner)
        if found is not None:
            return found
    return None


def _kinds(struct: type[Struct]) -> dict[str, Any]:
    return {item.name: item.type for item in msgspec.structs.fields(struct)}


def _refuse_unknown(data: Any, struct: type[Struct], path: str, where: str) -> None:
    if not isinstance(data, Mapping):
        return
    known = _kinds(struct)
    for name, value in data.items():
        full = f"{path}{name}"
        if name not in known:
            raise ConfigError(f"{where}: unknown key `{full}`.{nearest(name, sorted(known), '`')}", setting=full)
        inner = _struct_of(known[name])
        if inner is not None:
            for item in value if isinstance(value, list | tuple) else [value]:
                _refuse_unknown(item, inner, f"{full}.", where)


def _apply_environment(data: dict[str, Any], env: Mapping[str, str]) -> None:
    for variable in sorted(env):
        if not variable.startswith(ENV_PREFIX) or variable.startswith(KUBERNETES):
            continue
        words = variable[len(ENV_PREFIX) :].lower().split("_")
        if words[0] not in _kinds(Config):
            close = difflib.get_close_matches(words[0], _kinds(Config), n=1, cutoff=0.8)
            if close:
                raise ConfigError(f"{variable}: no section `{words[0]}`. Did you mean `{close[0]}`?", setting=variable)
            continue  # another program's variable
        _override(data, Config, words, env[variable], variable)
    if URL_VARIABLE in env and f"{ENV_PREFIX}ENDPOINT_KNOWN_AS" not in env:
        data["endpoint"][0].pop("known_as", None)  # it names the server that was replaced


def _override(data: dict[str, Any], struct: type[Struct], words: list[str], text: str, variable: str) -> None:
    known = _kinds(struct)
    for cut in range(len(words), 0, -1):
        name = "_".join(words[:cut])
        if name not in known:
            continue
        rest, inner = words[cut:], _struct_of(known[name])
        if inner is None and not rest:
            data[name] = _from_text(text, known[name], variable)
            return
        if inner is not None and rest:
            if name in ("endpoint", "judge", "team"):
                data[name] = data.get(name) or [{}]
                _override(data[name][0], inner, rest, text, variable)
            elif isinstance(data.get(name, {}), Mapping):  # wrong types are refused later
                data[name] = dict(data.get(name, {}))
                _override(data[name], inner, rest, text, variable)
            return
    raise ConfigError(f"{variable}: names no setting.{nearest('_'.join(words), sorted(known), '`')}", setting=variable)


def _from_text(text: str, kind: Any, variable: str) -> Any:
    """The text itself if valid for the setting, else its TOML value (20, true, 0.5, [1, 2])."""
    with contextlib.suppress(msgspec.ValidationError, UnicodeEncodeError):
        return msgspec.convert(text, kind, strict=True, dec_hook=_decode)
    with contextlib.suppress(ValueError, RecursionError):
        value = tomllib.loads(f"value = {text}")["value"]
        with contextlib.suppress(msgspec.ValidationError, UnicodeEncodeError):
            return msgspec.convert(value, kind, strict=True, dec_hook=_decode)
    # A table may hold a key, and a long text is no typing error.
    secret = _struct_of(kind) is None and (kind == dict[str, Any] or Secret in get_args(kind))
    shown = "what it holds (not shown)" if secret or len(text) > MAX_SHOWN_CHARS or looks_like_key(text) else repr(text)
    raise ConfigError(f"{variable}: {shown} is not a value for this setting{_words(kind) or '.'}", setting=variable)
