"""What is released is what was tested: `make package` builds it, looks inside, installs it as a user would and runs it.

It needs build, twine, hatchling and an index to install from, so it is no part of `make test`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
ADDRESS = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "someone/referee"}
# Nothing of this checkout or of a workflow may reach a build or an installed package.
CLEAN = {name: value for name, value in os.environ.items() if name not in {*ADDRESS, "PYTHONPATH"}}


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] = CLEAN) -> str:
    """What a command prints; one that fails ends the whole with all it said."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}failed with {done.returncode}")
    return done.stdout


def check(truth: bool, otherwise: str) -> None:
    if not truth:
        sys.exit(f"package: {otherwise}")


def build(out: Path, *what: str, env: dict[str, str] = CLEAN) -> Path:
    """A wheel: from the sdist, which is made first, or with --wheel from the tree."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *what, env=env)
    (wheel,) = out.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel and their checksums, without the list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {item.filename: item.CRC for item in archive.infolist() if not item.filename.endswith("RECORD")}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def description(found: Message) -> str:
    """What PyPI shows of it."""
    text = found.get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def pythons() -> Iterator[tuple[str, str]]:
    """Each supported version that is on this machine, with its interpreter; this one for its own version."""
    here = "{}.{}".format(*sys.version_info)
    for version in SUPPORTED:
        homes = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        for candidate in [sys.executable] if version == here else [f"python{version}", *map(str, homes)]:
            try:  # pyenv puts names on PATH whose interpreter is not there
                subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=True, timeout=60)
            except (OSError, subprocess.SubprocessError):
                continue
            yield version, candidate
            break


def lowest() -> list[str]:
    """Every core dependency at the oldest version that pyproject.toml allows."""
    return [re.sub(r">=([\w.]+)(,[^;]*)?", r"==\1", item) for item in PROJECT["dependencies"]]


def smoke(python: str, wheel: Path, home: Path, *pins: str) -> None:
    """In an environment with nothing else, the installed command judges the shipped rollouts."""
    run(python, "-m", "venv", "--without-pip", home)
    bin_ = home / "bin"
    pip = (sys.executable, "-m", "pip", "--python", bin_ / "python", "--disable-pip-version-check", "--no-input")
    run(*pip, "install", "--quiet", "--no-compile", wheel, *pins)
    run(*pip, "check")
    said = run(bin_ / "referee", "--version", cwd=home)
    check(metadata(wheel)["Version"] in said, f"referee --version says {said!r}")
    check("The work:" in run(bin_ / "referee", "plan", "--help", cwd=home), "referee plan --help lacks its headings")
    check("batch managers" in run(bin_ / "referee", "docs", "verl", cwd=home), "referee docs verl shows no page")
    sim = [str(bin_ / "referee"), "sim", "--port", "0", "--speed", "100"]
    with subprocess.Popen(sim, cwd=home, env=CLEAN, stdout=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stdout is not None
            url = provider.stdout.readline().strip()
            check(url.startswith("http://127.0.0.1:"), f"referee sim says {url!r}")
            (home / "referee.toml").write_text(f'[[endpoint]]\nurl = "{url}"\nmodel = "judge"\n')
            rollouts = ROOT / "examples" / "rollouts.jsonl"
            run(bin_ / "referee", "score", rollouts, "--output", "rewards.jsonl", "--quiet", cwd=home)
        finally:
            provider.terminate()
    rewards = (home / "rewards.jsonl").read_text().splitlines()
    check(len(rewards) == len(rollouts.read_text().splitlines()), f"{len(rewards)} rewards are not all")
    check(not any('"reward":null' in row.replace(" ", "") for row in rewards), "a rollout has no reward")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder)
        wheel = build(temporary / "dist")
        pages = {f"referee/{page.relative_to(ROOT)}" for page in (ROOT / "docs").rglob("*.md")}
        check({name for name in contents(wheel) if "/docs/" in name} == pages, "the wheel lacks pages, or has more")
        check(contents(wheel) == contents(build(temporary / "tree", "--wheel")), "the sdist builds another wheel")
        run(sys.executable, "-m", "twine", "check", "--strict", *(temporary / "dist").iterdir())
        print(f"built: {', '.join(sorted(path.name for path in (temporary / 'dist').iterdir()))}", flush=True)

        check(not metadata(wheel).get_all("Project-URL"), "a build that knows no address names one")
        check(description(metadata(wheel)).strip() == README.strip(), "the description is not README.md")
        released = metadata(build(temporary / "released", env=CLEAN | ADDRESS))
        urls = released.get_all("Project-URL") or []
        check(len(urls) == 4, f"a release has the addresses {urls}")
        check(all("https://git.example/someone/referee" in url for url in urls), f"a release has the addresses {urls}")
        links = re.findall(r"\]\(([^)]+)\)", description(released))
        check(len(links) == len(re.findall(r"\]\(", README)), f"README has {len(links)} links in a release")
        lost = [link for link in links if not link.startswith(("https://", "#"))]
        check(not lost, f"on PyPI these lead nowhere: {lost}")
        print("addresses: in a release, and nowhere else", flush=True)

        found = list(pythons())
        with ThreadPoolExecutor() as pool:  # most of it is waiting for an index
            tried = {
                f"Python {version}": pool.submit(smoke, python, wheel, temporary / version) for version, python in found
            }
            version, python = found[0]
            if version == SUPPORTED[0]:  # the oldest versions have no wheels for a newer Python
                oldest = ", ".join(item.split(";")[0] for item in lowest())
                tried[oldest] = pool.submit(smoke, python, wheel, temporary / "lowest", *lowest())
            for name, done in tried.items():
                done.result()
                print(f"runs with {name}", flush=True)


if __name__ == "__main__":
    main()
