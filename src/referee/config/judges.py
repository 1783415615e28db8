"""Judges of a configuration: which name others, their own settings, and which endpoints they may use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from referee.config.apis import TEXTLESS, check_api
from referee.config.judge_schema import READ_BY, SHIPPED_KINDS, SHIPPED_ONLY, JudgeConfig
from referee.config.keys import find_key
from referee.config.members import MADE_OF_OTHERS, check_kind, check_members
from referee.config.schema import Config, EndpointConfig
from referee.errors import Refuse, nearest

MIN_VIEW_TOKENS = 16
MAX_WEIGHT = 1e9
"""Of a reward's term: trainers keep 7 digits, beyond this the other terms would vanish."""

NO_JUDGE = "unscored"
"""What `alone` says where no judge is named."""

_DEFAULT = JudgeConfig()


def all_judges(judges: Sequence[JudgeConfig]) -> Iterator[JudgeConfig]:
    """These, each followed by the judges it uses."""
    for judge in judges:
        yield judge
        yield from all_judges(judge.uses)


def asking_judges(judges: Sequence[JudgeConfig]) -> Iterator[JudgeConfig]:
    """Those of all_judges that ask a model themselves: juries and cascades only ask their members."""
    return (judge for judge in all_judges(judges) if judge.kind not in MADE_OF_OTHERS)


def change_judges(judges: Sequence[JudgeConfig], change: Callable[[JudgeConfig], JudgeConfig]) -> tuple[Any, ...]:
    """The same, each and those it uses changed."""
    return tuple(change(replace(judge, uses=change_judges(judge.uses, change))) for judge in judges)


def change_all(config: Config, change: Callable[[JudgeConfig], JudgeConfig]) -> Config:
    """The same with every judge changed, also the one that only the audit asks."""
    audit = replace(config.audit, judge=change_judges(config.audit.judge, change))
    return replace(config, judge=change_judges(config.judge, change), audit=audit)


def with_uses(config: Config, refuse: Refuse) -> Config:
    """The same with judges that others name inside those others: what is left are the terms of the reward."""
    judges = {judge.name: judge for judge in config.judge}
    named = {name for judge in config.judge for name in _open_names(judge) if name in judges}
    if not named or len(judges) < len(config.judge):  # a name that stands twice is refused by `check_judges`
        return config

    def whole(judge: JudgeConfig, above: tuple[str, ...]) -> JudgeConfig:
        path = (*above, judge.name)
        found = []
        for name in _open_names(judge):
            if name in path:
                raise refuse("judge", f"{' -> '.join((*path, name))}: a judge cannot use itself.")
            if name in judges:  # what is not there is refused by `check_judges`
                found.append(whole(judges[name], path))
        return replace(judge, uses=(*judge.uses, *found)) if found else judge

    terms = [whole(judge, ()) for judge in config.judge]
    return replace(config, judge=tuple(judge for judge in terms if judge.name not in named))


def _open_names(judge: JudgeConfig) -> list[str]:
    """The judges it names that are not inside it yet."""
    inside = {inner.name for inner in judge.uses}
    return [name for name in dict.fromkeys(names_in(judge)) if name not in inside]


def names_in(judge: JudgeConfig) -> tuple[str, ...]:
    """The judges that one names in its settings."""
    return judge.members if judge.alone == NO_JUDGE else (*judge.members, judge.alone)


def compares(judge: JudgeConfig) -> bool:
    """Whether it has no verdict on a sample without `reference`, whatever its template shows."""
    anchored = judge.kind == "pairwise" and judge.schedule == "anchor" and judge.anchor == "reference"
    return judge.kind == "reference" or anchored


def lacks_criteria(judge: JudgeConfig) -> bool:
    """Whether it has no verdict on a sample without `rubric`."""
    return judge.kind == "rubric" and not judge.criterion and not judge.rubric_file


def check_judges(config: Config, refuse: Refuse) -> None:
    """Raise what `refuse` makes of the first problem."""
    if not config.judge:
        raise refuse("judge", "there must be at least one.")
    terms = config.known_judges
    judges = list(all_judges(terms))
    used = [judge for term in terms for judge in all_judges(term.uses)]
    once = [judge for number, judge in enumerate(used) if judge not in used[:number]]  # several may use the same one
    names = Counter(judge.name for judge in (*terms, *once))
    # Those that others use have left their places in the array, so that a number would not lead to them.
    places = [f"judge {judge.name!r}" if used else f"judge[{number}]" for number, judge in enumerate(judges)]
    places = places if len(judges) > 1 else ["judge"]
    for judge, where in zip(judges, places, strict=True):
        if len(judges) > 1 and not judge.name:
            raise refuse(f"{where}.name", 'each of several judges needs a name of its own, such as "quality".')
        if names[judge.name] > 1:
            raise refuse(
                f"{where}.name", f"{judge.name!r} is the name of {names[judge.name]} judges; each needs its own."
            )
        if judge.name == NO_JUDGE:
            raise refuse(f"{where}.name", f"{NO_JUDGE!r} cannot be a name: it is what `alone` says for no judge.")
    for judge, where in zip(judges, places, strict=True):
        _check_judge(judge, where, refuse)
        inside = [inner.name for inner in judge.uses]
        for name in names_in(judge):
            if name not in inside:
                setting = f"{where}.{'members' if name in judge.members else 'alone'}"
                raise refuse(setting, f"no judge is named {name!r}. Write a [[judge]] of that name.")
        for inner in judge.uses:
            if inner.name not in names_in(judge):
                raise refuse(f"{where}.uses", f"{inner.name!r} would be read past: no setting names it.")
            if inner.optional or inner.weight != 1:
                raise refuse(
                    "judge.weight",
                    f"{inner.name!r} is used by {judge.name!r} and so is no term of the reward: its weight and "
                    f"`optional` would be read past. Leave them out, or set those of {judge.name!r}.",
                )
        check_kind(judge, where, refuse)
        if judge.kind in MADE_OF_OTHERS:
            check_members(judge, where, refuse)
        else:
            _check_endpoints(judge, where, config.endpoint, refuse)
            asked = [config.endpoint[number] for number in endpoints_of(judge, config.endpoint)]
            check_api(judge, where, asked, refuse)
    if all(judge.weight == 0 for judge in config.judge) and len(config.judge) > 1:
        raise refuse("judge.weight", "is 0 for every judge, so nothing would be rewarded.")


def pool_of(judge: JudgeConfig) -> str:
    """A name for the endpoints of a judge; empty: all of them."""
    wanted = (judge.endpoint,) if isinstance(judge.endpoint, str) else judge.endpoint
    return "\0".join(sorted({name for name in wanted if name}))


def endpoints_of(judge: JudgeConfig, endpoints: Sequence[EndpointConfig]) -> list[int]:
    """Indices of the endpoints of a judge."""
    wanted = (judge.endpoint,) if isinstance(judge.endpoint, str) else judge.endpoint
    names = [name for name in wanted if name]
    return [number for number, endpoint in enumerate(endpoints) if not names or endpoint.label in names]


def api_of(judge: JudgeConfig, endpoints: Sequence[EndpointConfig], refuse: Refuse) -> str:
    """What `judge.api` must be."""
    used = [] if judge.kind in MADE_OF_OTHERS else endpoints_of(judge, endpoints)
    found = endpoints[used[0]].api if used and endpoints[used[0]].api in TEXTLESS else ""
    if judge.api not in ("", found):
        raise refuse("judge.api", "is not for you to set: the API of an endpoint is endpoint.api.")
    return found


def _check_judge(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    if judge.low >= judge.high:
        raise refuse(f"{where}.low", f"low ({judge.low}) must be below high ({judge.high}).")
    if judge.temperature != "default" and not (judge.temperature >= 0 and math.isfinite(judge.temperature)):
        raise refuse(f"{where}.temperature", f'must be a number of at least 0, or "default", not {judge.temperature}.')
    if judge.ask_above is not None and not math.isfinite(judge.ask_above):  # of NaN nothing would be asked about
        raise refuse(f"{where}.ask_above", f"must be a finite number, not {judge.ask_above}.")
    if not 0 <= judge.threshold <= 1:
        raise refuse(f"{where}.threshold", f"must be from 0 to 1, as the weighted mean is, not {judge.threshold}.")
    if not abs(judge.weight) <= MAX_WEIGHT:
        raise refuse(f"{where}.weight", f"must be a number of at most {MAX_WEIGHT:g}, not {judge.weight}.")
    if not judge.fences and judge.kind != "yes_no":
        raise refuse(
            f"{where}.fences", f'false needs kind = "yes_no", not "{judge.kind}": elsewhere fences are the defence.'
        )
    _check_options(judge.options, f"{where}.options", refuse)
    _check_read(judge, where, refuse)
    view = judge.max_view_tokens
    for name, number, least in (
        ("max_tokens", judge.max_tokens, 1),
        ("ask_again", judge.ask_again, 0),
        ("permutations", judge.permutations, 1),
        ("rounds", judge.rounds, 0),
        ("min_comparisons", judge.min_comparisons, 1),
        ("repeat", judge.repeat, 1),
        ("max_view_tokens", MIN_VIEW_TOKENS if view is None else view, MIN_VIEW_TOKENS),
    ):
        if number < least:
            raise refuse(f"{where}.{name}", f"must be at least {least}, not {number}.")


def _check_read(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    """A setting that this kind of judge does not read would be read past."""
    for name, readers in READ_BY.items():
        asks = judge.kind in SHIPPED_KINDS and judge.kind not in MADE_OF_OTHERS  # of those see `check_members`
        if not (asks or name in SHIPPED_ONLY) or getattr(judge, name) == getattr(_DEFAULT, name):
            continue
        if not any(all(_chosen(judge, key) in values for key, values in reader.items()) for reader in readers):
            wanted = ", or ".join(
                " with ".join(f"{key} = {' or '.join(f'{one!r}' for one in values)}" for key, values in reader.items())
                for reader in readers
            ).replace("api = ''", "an endpoint.api that generates text")
            raise refuse(f"{where}.{name}", f"is set, but this judge does not read it. It is for {wanted}.")


def _chosen(judge: JudgeConfig, setting: str) -> Any:
    return judge.combined_by if setting == "combine" else getattr(judge, setting)


def _check_options(options: dict[str, Any], where: str, refuse: Refuse) -> None:
    """They are sent to workers, and name the judge in cache keys and records: plain data, and nothing secret."""
    if find_key(options) is not None:
        raise refuse(where, "a key does not belong here: it would be recorded, and a judge sends nothing by itself.")
    try:
        plain = msgspec.json.decode(msgspec.json.encode(options)) == options
    except (TypeError, ValueError, OverflowError, RecursionError):
        plain = False
    if not plain:
        raise refuse(where, "must be plain data: texts, finite numbers, true and false, lists and tables of those.")


def _check_endpoints(judge: JudgeConfig, where: str, endpoints: Sequence[EndpointConfig], refuse: Refuse) -> None:
    """Two models alternating within a group would give scores that do not compare."""
    labels = [endpoint.label for endpoint in endpoints]
    wanted = (judge.endpoint,) if isinstance(judge.endpoint, str) else judge.endpoint
    for name in wanted:
        if name and name not in labels:
            raise refuse(f"{where}.endpoint", f"no endpoint is named {name!r}.{nearest(name, labels)}")
    serving = [endpoints[number] for number in endpoints_of(judge, endpoints) if not endpoints[number].backup]
    if not serving:
        raise refuse(f"{where}.endpoint", "all of its endpoints are backup; one of them must not be.")
    models = list(dict.fromkeys(endpoint.model for endpoint in serving))
    if len(models) > 1:
        raise refuse(
            f"{where}.endpoint",
            f"its endpoints serve different models ({' and '.join(models)}): they would take turns inside a group, and "
            "their scores do not compare. Write backup = true into the [[endpoint]] that is to wait for failures of "
            'the other; or give both a name, such as name = "main", and write endpoint = "main" into the judge.',
        )
