"""The example plug-in as an installed package. A pure wheel is a zip with a few files of metadata; it is written here,
because no build backend is part of a development environment."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


def install_example(folder: Path) -> Path:
    """Put the example into a folder, as `pip install` does; returns the folder, for the module path."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    wheel = folder / f"{stem}-py3-none-any.whl"
    files = {path.relative_to(EXAMPLE).as_posix(): path.read_text() for path in EXAMPLE.glob("referee_example/*.py")}
    files |= metadata(f"{stem}.dist-info", project["name"], project["version"], project["entry-points"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--target", str(target), str(wheel)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return target


def metadata(folder: str, name: str, version: str, groups: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What says that a package is installed, and which entry points it has, by file name."""
    points = [
        f"[{group}]\n" + "".join(f"{left} = {right}\n" for left, right in it.items()) for group, it in groups.items()
    ]
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/entry_points.txt": "\n".join(points),
        f"{folder}/RECORD": "",
    }


def install_by_hand(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], **modules: str) -> None:
    """A small package in a folder of the module path: its metadata, and its modules by name."""
    files = metadata(f"{name}-1.0.dist-info", name, "1.0", groups)
    files |= {f"{module}.py": text for module, text in modules.items()}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
