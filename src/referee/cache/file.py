"""The cache file before SQLite opens it: its location, its owner, whether it is a cache of ours.

A file that is not ours is never opened by SQLite, which may replay a journal it finds, and never written to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Literal

MAGIC = b"SQLite format 3\0"
APPLICATION_ID = 0x52465245
"""Bytes 68 to 71 of a SQLite file name its application: "RFRE"."""

BESIDE = ("-wal", "-shm", "-journal")
"""Files SQLite keeps beside the main one."""

# Several hosts can open a file there, and SQLite's write-ahead log needs shared memory between its users: it can
# corrupt the file, or take locks that are never released.
_NETWORK = {
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "smbfs", "afs", "glusterfs", "orangefs"),
    *("pvfs2", "panfs", "wekafs", "ncpfs", "coda"),
}
_LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.overlayfs"}

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

Kind = Literal["new", "ours", "foreign", "broken"]


def network_filesystem(path: Path, mounts: str) -> str:
    """The type of the filesystem below `path` if it is a network one, else "". `mounts` is /proc/self/mounts."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[1])
        # Later lines hide earlier ones on the same point.
        if len(point) >= best and path.is_relative_to(point):
            best, kind = len(point), fields[2]
    networked = kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)
    return kind if networked else ""


def prepare(path: Path) -> str:
    """Create a private file if there is none. Returns what is wrong, or "" if nothing is."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = network_filesystem(Path(os.path.realpath(path.parent)), _mounts())
        if kind:
            return f"it is on a network filesystem ({kind}), where SQLite is not safe; name a local disk"
        with contextlib.suppress(FileExistsError):
            # Private from the start: SQLite gives the files beside it the same mode.
            os.close(os.open(path, _CREATE, 0o600))
        return _ownership(path)
    except OSError as error:
        return f"it cannot be used ({error.strerror or type(error).__name__})"
    except ValueError as error:  # a name no filesystem takes
        return f"it cannot be used ({error})"


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _ownership(path: Path) -> str:
    for name in (path, *(path.with_name(path.name + suffix) for suffix in BESIDE)):
        try:
            found = name.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            return f"{name.name} is not a plain file (links are not followed)"
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            return f"{name.name} belongs to another user"
    return ""


def inspect(path: Path) -> Kind:
    """What the file is, from its first bytes alone. A text file is foreign, not a broken cache."""
    head = path.read_bytes() if path.stat().st_size < 512 else _head(path, 512)
    if not head:
        return "new"
    if head.startswith(MAGIC):
        return "ours" if int.from_bytes(head[68:72], "big") == APPLICATION_ID else "foreign"
    return "broken" if b"\0" in head else "foreign"


def format_of(path: Path) -> int:
    """Which format a cache of ours has, from the file's own first page."""
    return int.from_bytes(_head(path, 64)[60:], "big")


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(size)


def make_private(path: Path) -> None:
    """Remove permissions that an earlier umask may have given to others."""
    with contextlib.suppress(OSError):
        path.chmod(0o600)


def set_aside(path: Path, inode: int, why: str) -> str:
    """Rename a file that cannot be used, and the files SQLite keeps beside it, adding `why` to their names. Returns the
    new name, or "" if nothing was renamed.

    Another process may have done so already: only the file with this inode is moved, not the new one in its place.
    """
    aside = path.with_name(f"{path.name}.{why}")
    number = 0
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{why}-{number}")
    try:
        if path.stat().st_ino != inode:
            return ""
        path.rename(aside)
    except OSError:
        return ""
    for suffix in BESIDE:
        # A log left behind would be replayed into the next file of this name.
        with contextlib.suppress(OSError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside.name
