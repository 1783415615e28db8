"""The cache file between processes: killed writers, two at once, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contracts.cache_suite import entry, key

from referee.cache import SqliteCache
from referee.cache.entry import bare

ROOT = Path(__file__).parents[2]

HEAD = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from referee.cache import SqliteCache
from tests.contracts.cache_suite import entry, key, store, bare
cache = SqliteCache(sys.argv[1])
"""

ENDLESS = """
def acked(number):
    print(number, flush=True)
for number in range(10**9):
    stop = threading.Event()
    cache.put(key(number), entry(number), lambda n=number: (acked(n), stop.set()))
    if number % 7 == 0:
        stop.wait()
"""

SHARE = """
start = int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(start, start + 300):
    cache.put(key(number), entry(number))
store(cache, key(start + 300), entry(start + 300))
assert not cache.problem, cache.problem
found = [cache.get(key(number)) == bare(entry(number)) for number in range(start, start + 301)]
cache.close()
print("all" if all(found) else "some missing", flush=True)
"""

FORK = """
done = threading.Event()
stop = threading.Event()

def busy():  # the parent's loop thread, in the cache all the time
    number = 1000
    while not stop.is_set():
        cache.put(key(number), entry(number))
        cache.get(key(number))
        number += 1

store(cache, key(1), entry(1))
thread = threading.Thread(target=busy)
thread.start()
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        ok = cache.get(key(1)) == bare(entry(1))
        store(cache, key(10 + child), entry(10 + child))
        ok = ok and cache.get(key(10 + child)) == bare(entry(10 + child)) and not cache.problem
        cache.close()
        os._exit(0 if ok else 1)
    children.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in children]
stop.set()
thread.join()
store(cache, key(2), entry(2))
found = [n for n in (1, 2, 10, 11, 12, 13) if cache.get(key(n)) == bare(entry(n))]
print(codes, found, repr(cache.problem), flush=True)
cache.close()
"""

QUIET_CHILD = """
store(cache, key(1), entry(1))
pid = os.fork()
if pid == 0:
    sys.exit(0)  # a child that never touches the cache, and tidies up at its end
os.waitpid(pid, 0)
pid = os.fork()
if pid == 0:
    cache.close()
    os._exit(0)
os.waitpid(pid, 0)
store(cache, key(2), entry(2))
print(cache.get(key(1)) == bare(entry(1)), cache.get(key(2)) == bare(entry(2)), repr(cache.problem), flush=True)
cache.close()
"""


def start(script: str, path: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", HEAD + script, str(path), str(ROOT), *more]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path.parent
    )


def output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    return out.strip()


@pytest.mark.parametrize("after", [1, 20, 75])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, after: int) -> None:
    """Kill -9 right after `done`: every acknowledged verdict is there, and nothing is torn."""
    path = tmp_path / "cache.sqlite"
    process = start(ENDLESS, path)
    assert process.stdout is not None
    acked = [int(process.stdout.readline()) for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read()  # not communicate: that reads past what readline has buffered
    process.communicate(timeout=50)
    acked += [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    cache = SqliteCache(path)
    assert not cache.problem
    for number in acked:
        assert cache.get(key(number)) == bare(entry(number))
    for name, found in cache.entries():
        assert found == entry(int(name[15:], 16))
    cache.close()


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    """Both begin a new file at the same time and write into it; each finds its own, the next one finds all."""
    path = tmp_path / "cache.sqlite"
    pair = [start(SHARE, path, str(first)) for first in (0, 1000)]
    for process in pair:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [output(process).split("\n")[-1] for process in pair] == ["all", "all"]
    cache = SqliteCache(path)
    assert cache.stats()["rows"] == 602
    cache.close()


def test_children_of_a_fork_have_a_cache_of_their_own(tmp_path: Path) -> None:
    """Forked while the writer and a reader are at work: the children read and write, and so does the parent."""
    path = tmp_path / "cache.sqlite"
    assert output(start(FORK, path)) == "[0, 0, 0, 0] [1, 2, 10, 11, 12, 13] ''"
    cache = SqliteCache(path)
    assert not cache.problem
    for name, found in cache.entries():
        assert found == entry(int(name[15:], 16))
    cache.close()


def test_a_child_that_ends_does_not_disturb_its_parent(tmp_path: Path) -> None:
    """A child that never used the cache, or only closed it, leaves the parent's file alone."""
    assert output(start(QUIET_CHILD, tmp_path / "cache.sqlite")) == "True True ''"
