"""Files that commands write: whole, with the permissions that they had, and through no planted link."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest

from adapter.commands.file_writing import back_up, replace_file, write_new


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o644])
def test_a_file_keeps_its_permissions(tmp_path: Path, permissions: int) -> None:
    """And nothing is left beside it."""
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(permissions)
    replace_file(file, b"new")
    assert (file.read_bytes(), mode(file), list(tmp_path.iterdir())) == (b"new", permissions, [file])


def test_a_link_of_the_user_stays_one(tmp_path: Path) -> None:
    """People link their dotfiles into a repository; the file there is written, also one that is not there yet."""
    for name in ("real", "missing"):
        link = tmp_path / f"link-to-{name}"
        link.symlink_to(tmp_path / name)
        replace_file(link, b"new")
        assert link.is_symlink() and (tmp_path / name).read_bytes() == b"new"


def test_a_new_file_goes_through_no_link(tmp_path: Path) -> None:
    """Not even one that leads nowhere."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "missing")
    with pytest.raises(FileExistsError):
        write_new(link, b"new")
    assert not (tmp_path / "missing").exists()


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """Such as a pipe or a device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        replace_file(tmp_path / "pipe", b"new")


def test_copies_of_one_second_are_all_kept(tmp_path: Path) -> None:
    """Each has a name of its own, and is as private as the file."""
    file = tmp_path / "file"
    file.write_text("0")
    file.chmod(0o600)
    backups = []
    for number in range(5):
        backups.append(back_up(file))
        replace_file(file, str(number + 1).encode())
    assert [each.read_text() for each in backups] == ["0", "1", "2", "3", "4"]
    assert {mode(each) for each in backups} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_stays_that_of_its_owner(tmp_path: Path) -> None:
    """Under sudo it is edited for the user, who could not read root's; so is its copy."""
    file = tmp_path / "file"
    file.write_text("old")
    os.chown(file, 1234, 1235)
    file.chmod(0o600)
    backup = back_up(file)
    replace_file(file, b"new")
    assert [(each.stat().st_uid, each.stat().st_gid, mode(each)) for each in (file, backup)] == [
        (1234, 1235, 0o600)
    ] * 2


def test_a_full_disk_leaves_the_file_whole(tmp_path: Path) -> None:
    """And nothing beside it: the system refuses what is above the limit."""
    file = tmp_path / "file"
    file.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_file(file, b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]
