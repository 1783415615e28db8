"""The part of the package's metadata that is not known before it is built: where the project lives.

Only the release workflow knows the repository's address, and a guessed one would be printed on PyPI,
so a build elsewhere names none.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Addresses(MetadataHookInterface):
    """`[project.urls]` from the environment of a GitHub workflow."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        if metadata.get("urls"):  # built from an sdist, which says it already
            return
        if not (server and repository):
            metadata["urls"] = {}
            return
        home = f"{server}/{repository}"
        metadata["urls"] = {
            "Homepage": home,
            "Documentation": f"{home}/tree/main/docs",
            "Changelog": f"{home}/blob/main/CHANGELOG.md",
            "Issues": f"{home}/issues",
        }
