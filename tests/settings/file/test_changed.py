"""A settings file that changes on disk."""

from __future__ import annotations

import os
from pathlib import Path

from adapter.settings.file.changed import FileWatch, changed_keys


def test_a_file_is_another_one_once_it_stays_as_it_is(tmp_path: Path) -> None:
    """A file that is being written is not read; each change is told once."""
    file = tmp_path / "config.yaml"
    file.write_text("one")
    watch = FileWatch(file)
    assert not watch.look()
    file.write_text("one and a half")
    assert not watch.look()
    file.write_text("one, a half, and more")
    assert not watch.look()
    assert watch.look()
    assert not watch.look()


def test_a_link_to_another_file_is_a_change(tmp_path: Path) -> None:
    """So are ConfigMaps of Kubernetes exchanged; a file that is missing for a moment is none."""
    for name in ("old", "new"):
        (tmp_path / name).write_text("same")
    link = tmp_path / "config.yaml"
    link.symlink_to(tmp_path / "old")
    watch = FileWatch(link)
    link.unlink()
    assert not watch.look() and not watch.look()
    link.symlink_to(tmp_path / "new")
    assert not watch.look()
    assert watch.look()


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Settings that came through one cannot be read again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    watch = FileWatch(pipe)
    os.utime(pipe, (1, 1))
    assert not watch.look() and not watch.look()


def test_without_a_file_nothing_changes() -> None:
    """The settings may come from the environment alone."""
    watch = FileWatch(None)
    assert not watch.look() and not watch.look()


def test_a_key_that_is_missing_on_one_side_differs() -> None:
    """A version may know more keys than another."""
    assert changed_keys({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == ["b", "c", "d"]


def test_files_below_a_folder_count_too(tmp_path: Path) -> None:
    """Those that settings may name, but none of hidden folders."""
    file, script = tmp_path / "config.yaml", tmp_path / "tools" / "say.py"
    script.parent.mkdir()
    file.touch()
    watch = FileWatch(file, tmp_path)
    for name in ("notes.txt", ".git/say.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert not watch.look() and not watch.look()
    script.touch()
    assert not watch.look()
    assert watch.look()
    assert not watch.look()
