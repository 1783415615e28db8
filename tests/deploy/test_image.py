"""The image without Docker (`make test-deploy`): deploy/Dockerfile carried out in an overlay over this machine's files.

What that is not: the base image. Python and the libraries are this machine's. All else is as a container has it: RUN
and COPY as written, a root of its own that is read-only, the user, the working directory, the command line, no variable
of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.files import DEPLOY, ROOT, command, dockerfile, health_check, image

CLONE_NEWNS = 0x20000
TOKEN, KEY = "token-of-the-tests-0123456789", "sk-of-the-tests-0123456789"
PORT = command()[command().index("--port") + 1]
BODY = json.dumps({"samples": [{"prompt": "p", "response": "[[quality=7]]"}]}).encode()
PYTHON = Path(sys.executable).resolve()
SYSTEM = f"{PYTHON.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
PATIENCE = 60.0


def run(*words: str | Path) -> str:
    """What a command prints; it must end with 0."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def inside(root: Path, home: str, words: list[str], user: str = "0:0", **env: str) -> list[str]:
    """A command in a container: its root, its user, its working directory and its variables."""
    given = [f"{name}={value}" for name, value in env.items()]
    there = ["sh", "-c", 'cd "$0" && exec "$@"', home]
    return ["chroot", f"--userspec={user}", str(root), "env", "-i", *given, *there, *words]


def new_root(folder: Path) -> Path:
    """This machine's files; what is written is kept apart."""
    for name in ("up", "work", "root"):
        (folder / name).mkdir(parents=True)
    root = folder / "root"
    options = f"lowerdir=/,upperdir={folder / 'up'},workdir={folder / 'work'}"
    run("mount", "-t", "overlay", "overlay", "-o", options, root)
    run("mount", "--rbind", "/dev", root / "dev")
    run("mount", "-t", "proc", "proc", root / "proc")
    for parent in PYTHON.parents:  # a base image's Python is for every user
        place = root / parent.relative_to("/")
        place.chmod(place.stat().st_mode | 0o055)
    return root


def build(folder: Path) -> Path:
    """The root of the finished image."""
    roots: list[Path] = []
    for number, stage in enumerate(dockerfile()):
        root, home = new_root(folder / str(number)), "/"
        for name, value in stage:
            if name == "RUN":
                run(*inside(root, home, ["sh", "-c", value], PATH=SYSTEM, HOME=os.environ["HOME"]))
            elif name == "WORKDIR":
                home = value
                (root / home.strip("/")).mkdir(parents=True, exist_ok=True)
            elif name == "COPY":
                *sources, target = value.split()
                origin = roots[0] if sources[0] == "--from=build" else ROOT
                for source in [origin / word.strip("/") for word in sources if not word.startswith("--")]:
                    place = root / os.path.join(home, target).strip("/")
                    if source.is_dir():
                        ignored = shutil.ignore_patterns("__pycache__") if origin is ROOT else None
                        shutil.copytree(source, place, symlinks=True, ignore=ignored)
                    else:
                        shutil.copy(source, place)
        roots.append(root)
    return roots[-1]


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's root as a container has it: read-only but for /tmp and the volume, with the configuration."""
    if os.geteuid() or ctypes.CDLL(None).unshare(CLONE_NEWNS):
        pytest.skip("needs root and Linux, for mounts that end with this process")
    folder = tmp_path_factory.mktemp("image")
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "tmpfs", folder)
    root = build(folder)
    config = root / "etc/referee/referee.toml"
    config.parent.mkdir()
    shutil.copy(DEPLOY / "config" / "referee.toml", config)
    run("mount", "-o", "remount,ro", root)
    user, _, group = image()["USER"].partition(":")
    for place in ("tmp", image()["WORKDIR"].strip("/")):
        run("mount", "-t", "tmpfs", "-o", f"uid={user},gid={group},mode=700", "tmpfs", root / place)
    return root


def as_user(root: Path, words: list[str], **env: str) -> list[str]:
    """A command as the image runs it."""
    path = image()["ENV"].removeprefix("PATH=").replace("$PATH", SYSTEM)
    return inside(root, image()["WORKDIR"], words, image()["USER"], PATH=path, **env)


def ask(path: str, body: bytes | None = None, token: str = "") -> tuple[int, bytes]:
    """Status and body of one request."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body, headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextlib.contextmanager
def started(root: Path, words: list[str], log: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the container; killed at the end if it has not ended by itself."""
    with log.open("w") as stderr:
        child = subprocess.Popen(as_user(root, words, **env), stdout=subprocess.PIPE, stderr=stderr, text=True)
    with child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.timeout(600)
def test_the_image_serves(container: Path, tmp_path: Path) -> None:
    """Built as written and run as written: healthy by its own check, closed without the token, and SIGTERM ends it."""
    sim = ["referee", "sim", "--port", "0", "--latency", "0.01"]
    log = tmp_path / "stderr.txt"
    with started(container, sim, tmp_path / "sim.txt") as provider:
        assert provider.stdout is not None
        env = {"REFEREE_ENDPOINT_URL": provider.stdout.readline().strip(), "OPENAI_API_KEY": KEY, "JUDGE_TOKEN": TOKEN}
        with started(container, command(), log, **env) as service:
            until = time.monotonic() + PATIENCE
            while subprocess.run(as_user(container, health_check()), capture_output=True, check=False).returncode:
                assert service.poll() is None, log.read_text()
                assert time.monotonic() < until, "never healthy"
                time.sleep(0.1)
            assert f"Uid:\t{image()['USER'].partition(':')[0]}\t" in Path(f"/proc/{service.pid}/status").read_text()
            assert ask("/v1/score", BODY)[0] == 401
            status, answer = ask("/v1/score", BODY, TOKEN)
            assert (status, json.loads(answer)["results"][0]["score"]) == (200, 7)
            service.send_signal(signal.SIGTERM)
            assert service.wait(PATIENCE) == 0
    home = container / image()["WORKDIR"].strip("/")
    assert (home / ".referee" / "cache.sqlite").stat().st_size
    assert any((home / "ledger").iterdir())
    assert not any(secret in log.read_text() for secret in (TOKEN, KEY))
    assert subprocess.run(health_check(), capture_output=True, check=False).returncode, "healthy although it has ended"


def test_nothing_but_its_own_folders_can_be_written(container: Path) -> None:
    """The installation and the configuration are not the service's to change."""
    for place in ("/opt/referee/x", "/etc/referee/referee.toml", "/x"):
        done = subprocess.run(as_user(container, ["touch", place]), capture_output=True, text=True, check=False)
        assert done.returncode, place


def test_the_image_holds_what_it_needs_and_no_more(container: Path) -> None:
    """The wheel with its two extras and the pages that messages name; no pip, no sources, no other extra."""
    made = container / "opt/referee"
    names = {path.name.partition("-")[0] for path in made.glob("lib/python*/site-packages/*.dist-info")}
    assert {"llm_referee", "redis", "uvicorn"} <= names
    assert not names & {"pip", "pytest", "ray", "plotly", "pyarrow"}
    assert not (container / "src/src").exists()
    assert "The HTTP service" in run(*as_user(container, ["referee", "docs", "serve"]))
