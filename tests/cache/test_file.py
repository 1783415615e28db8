"""Where a cache file may lie and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.cache.file import inspect, network_filesystem, prepare, set_aside

MOUNTS = """/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/local xfs rw 0 0
lustre@tcp:/scratch /scratch lustre rw 0 0
sshfs#me@host: /mnt/my\\040disk fuse.sshfs rw 0 0
overlay /var/overlay fuse.fuse-overlayfs rw 0 0
tmpfs /home/shadowed tmpfs rw 0 0
server:/x /home/shadowed nfs rw 0 0
bad line
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/work", ""),
        ("/home/me/run", "nfs4"),
        ("/home/local/run", ""),
        ("/homes/me", ""),
        ("/scratch", "lustre"),
        ("/mnt/my disk/a", "fuse.sshfs"),
        ("/var/overlay/a", ""),
        ("/home/shadowed/a", "nfs"),
    ],
)
def test_network_filesystems_are_known(path: str, expected: str) -> None:
    """The innermost mount decides, the last one on a point hides the others."""
    assert network_filesystem(Path(path), MOUNTS) == expected


def test_without_a_list_of_mounts_a_disk_is_taken_for_local() -> None:
    """Other systems have no /proc."""
    assert network_filesystem(Path("/home"), "") == ""


def test_a_new_file_is_private(tmp_path: Path) -> None:
    """File 0600, directory 0700, from the first moment."""
    path = tmp_path / "a" / "b" / "cache.sqlite"
    assert prepare(path) == ""
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert prepare(path) == ""


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Not for the file, and not for the log beside it."""
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert "link" in prepare(tmp_path / "link")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert prepare(tmp_path / "dangling")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "cache-wal").symlink_to(tmp_path / "target")
    assert "cache-wal" in prepare(tmp_path / "cache")


def test_a_place_that_cannot_be_written_is_a_problem_not_an_error(tmp_path: Path) -> None:
    """A directory in its place, a file for a parent, a system directory."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_bytes(b"")
    assert prepare(tmp_path / "dir")
    assert prepare(tmp_path / "file" / "cache")
    assert prepare(Path("/proc/nowhere/cache"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "new"),
        (b"SQLite format 3\0" + bytes(84), "foreign"),
        (b"SQLite format 3\0" + bytes(52) + b"RFRE" + bytes(28), "ours"),
        (b'{"prompt": "somebody\'s rollouts"}\n' * 40, "foreign"),
        (bytes(100), "broken"),
        (b"SQLite format 4\0" + bytes(4000), "broken"),
    ],
)
def test_the_first_bytes_tell_whose_it_is(tmp_path: Path, content: bytes, expected: str) -> None:
    """Text is somebody's file; binary that is no database is a broken one."""
    path = tmp_path / "f"
    path.write_bytes(content)
    assert inspect(path) == expected


def test_setting_aside_takes_everything_and_overwrites_nothing(tmp_path: Path) -> None:
    """The log goes with the file, and an earlier casualty of the same second is kept."""
    path = tmp_path / "c"
    for number in range(2):
        path.write_bytes(b"%d" % number)
        (tmp_path / "c-wal").write_bytes(b"wal")
        assert set_aside(path, path.stat().st_ino, "corrupt-1234").startswith("c.corrupt-1234")
    names = sorted(found.name for found in tmp_path.iterdir())
    assert names == ["c.corrupt-1234", "c.corrupt-1234-1", "c.corrupt-1234-1-wal", "c.corrupt-1234-wal"]


def test_a_file_somebody_else_already_replaced_is_left(tmp_path: Path) -> None:
    """Only the broken file is moved, not the new one another process began in its place."""
    path = tmp_path / "c"
    path.write_bytes(b"new")
    assert set_aside(path, path.stat().st_ino + 1, "corrupt-1") == ""
    assert path.read_bytes() == b"new"
