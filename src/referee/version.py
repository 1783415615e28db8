"""The version, in one place, and whether this build of it is compiled."""

from importlib.util import find_spec

VERSION = "0.1.0"


def compiled() -> bool:
    """True if the modules on a sample's way were compiled when this was installed (docs/design/compiled.md)."""
    found = find_spec("referee.scorer")
    return found is not None and not (found.origin or "").endswith(".py")
