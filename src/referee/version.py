"""The version: of the package, its metadata, the changelog's first heading and the release's tag."""

VERSION = "0.2.0"
