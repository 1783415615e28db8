"""The part of the package's metadata that is not known before it is built: where the project lives.

Only the release workflow knows the repository's address, and a guessed one would be printed on PyPI,
so a build elsewhere names none.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Addresses(MetadataHookInterface):
    """`[project.urls]` and the links of the description, from the environment of a GitHub workflow."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        if metadata.get("urls"):  # built from an sdist, which says it already
            return
        home = f"{server}/{repository}" if server and repository else ""
        text = metadata.get("readme", {}).get("text") or (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": linked(text, home)}
        pages = {"Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
        metadata["urls"] = {"Homepage": home} | {name: home + path for name, path in pages.items()} if home else {}


def linked(text: str, home: str) -> str:
    """A page whose links and pictures also work where its folder is not."""
    if not home:
        return text
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{home}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{home}/blob/main/", text)
