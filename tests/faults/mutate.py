"""Break the code on purpose, one small change at a time, and see whether a test notices.

`python -m tests.faults.mutate [module …]`. In each target every comparison, number, condition, operator and return is
changed in turn, and the tests that belong to it run against the changed source in a child process. A change that no
test notices survived: a test is missing, or it makes no difference. docs/design/mutants.md explains those known.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SRC = ROOT / "src"
TARGETS: dict[str, tuple[str, ...]] = {
    "judging/read.py": (
        "tests/judging/test_read_edges.py",
        "tests/judging/test_read.py",
        "tests/judging/test_matrix.py",
        "tests/judging/test_yes_no.py",
    ),
    "judging/gates.py": (
        "tests/judging/test_read_edges.py",
        "tests/judging/test_gates.py",
        "tests/judging/test_judge.py",
    ),
    "wire/failure.py": (
        "tests/wire/test_statuses.py",
        "tests/wire/test_failure.py",
        "tests/wire/test_unsupported.py",
        "tests/wire/test_fault.py",
    ),
    "wire/chat.py": ("tests/wire/test_chat.py", "tests/wire/test_chat_reply.py", "tests/wire/test_statuses.py"),
    "wire/chat_reply.py": (
        "tests/wire/test_odd_replies.py",
        "tests/wire/test_chat_reply.py",
        "tests/wire/test_failure.py",
    ),
    "wire/error_body.py": (
        "tests/wire/test_odd_replies.py",
        "tests/wire/test_statuses.py",
        "tests/wire/test_failure.py",
    ),
    "wire/times.py": ("tests/wire/test_zones.py", "tests/wire/test_times.py", "tests/wire/test_hints.py"),
    "limits/bucket.py": ("tests/limits/test_bucket.py",),
    "limits/budget.py": ("tests/limits/test_budget.py",),
    "limits/breaker.py": ("tests/limits/test_breaker_edges.py", "tests/limits/test_breaker.py"),
    "limits/backoff.py": ("tests/limits/test_backoff.py",),
    "limits/learned_rate.py": ("tests/limits/test_learned_rate.py",),
    "limits/header_quota.py": ("tests/limits/test_header_quota.py",),
    "limits/throughput_search.py": (
        "tests/limits/test_throughput_search.py",
        "tests/limits/test_adaptive_runs.py",
    ),
    "limits/queue_detection.py": (
        "tests/limits/test_queue_detection.py",
        "tests/limits/test_adaptive_edges.py",
        "tests/limits/test_adaptive.py",
    ),
    "limits/adaptive.py": (
        "tests/limits/test_adaptive_edges.py",
        "tests/limits/test_adaptive.py",
        "tests/limits/test_adaptive_runs.py",
    ),
    "runtime/routing.py": ("tests/runtime/test_routing.py", "tests/runtime/test_own_workers.py"),
    "shaping/missing.py": ("tests/shaping/test_missing.py",),
    "shaping/length.py": ("tests/shaping/test_length.py",),
    "shaping/combine.py": ("tests/shaping/test_combine.py",),
}
SECONDS = 120
"""A mutant that hangs is noticed by the clock."""
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, what was changed, and the changed source."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            target = next(n for at, n in enumerate(ast.walk(changed)) if at == number)
            change(target)
            yield getattr(node, "lineno", 0), what, ast.unparse(ast.fix_missing_locations(changed))


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], object]]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        new = SWAPS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} to {new.__name__}", lambda n: n.ops.__setitem__(0, new())
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{type(node.op).__name__} to {other.__name__}", lambda n: setattr(n, "op", other())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", _drop_not
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        swap = OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} to {swap.__name__}", lambda n: setattr(n, "op", swap())
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        yield f"{node.value} to {node.value + 1}", lambda n: setattr(n, "value", n.value + 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", lambda n: setattr(n, "value", not n.value)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returns None", lambda n: setattr(n, "value", ast.Constant(None))
    elif isinstance(node, ast.If | ast.IfExp):
        yield "condition turned", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))


def _drop_not(node: ast.UnaryOp) -> None:
    node.op, node.operand = ast.UAdd(), ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the changed source in place of one module's own."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: object) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


def noticed(target: str, source: str, tests: tuple[str, ...]) -> bool:
    """Whether the module's tests fail with this source in its place."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return status != 0
    signal.alarm(SECONDS)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    name = "referee." + target.removesuffix(".py").replace("/", ".")
    sys.meta_path.insert(0, _Finder(name, SRC / "referee" / target, source))
    import pytest

    code = pytest.main(
        [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            *tests,
        ]
    )
    os._exit(0 if code == 0 else 1)


def main() -> int:
    """Mutate the targets named, or all; `--every N` takes one mutant in N, `--again LOG` those that survived there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="module", help=", ".join(TARGETS))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--again", type=Path, metavar="LOG", help="only what survived in this output of an earlier run")
    options = parser.parse_args()
    before = options.again.read_text() if options.again else None
    os.chdir(ROOT)
    import hypothesis

    hypothesis.settings.register_profile("mutants", max_examples=25, derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")
    total = survived = 0
    for target in options.targets or TARGETS:
        source = (SRC / "referee" / target).read_text()
        if noticed(target, ast.unparse(ast.parse(source)), TARGETS[target]):
            print(f"{target}: its tests fail without any change")
            return 1
        here = alive = 0
        for at, (line, what, changed) in enumerate(mutants(source)):
            if at % options.every or (before is not None and f"{target}:{line}: {what}: survived" not in before):
                continue
            here += 1
            if not noticed(target, changed, TARGETS[target]):
                alive += 1
                print(f"{target}:{line}: {what}: survived", flush=True)
        total, survived = total + here, survived + alive
        print(f"{target}: {here} mutants, {here - alive} noticed, {alive} survived", flush=True)
    print(f"{total} mutants, {survived} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
