"""What a hostile model or server gets of a person's files by a path: nothing but files in the named folders."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import unicodedata
from pathlib import Path
from urllib.parse import quote

import pytest

from adapter.commands.connect.folders import Folders, NotAllowed

SECRET = b"a private key"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key, and a folder whose files may go up."""
    home = tmp_path / "ada"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_bytes(SECRET)
    shared = home / "Shared"
    for folder in (shared / ".ssh", shared / "deep", shared / "Private"):
        folder.mkdir(parents=True)
    for path in ("report.txt", "deep/größe.txt", ".env", ".ssh/id_ed25519", "Private/a.txt", "Server.KEY"):
        (shared / path).write_bytes(b"fine" if path.endswith(("t.txt", "e.txt")) else SECRET)
    (shared / "link").symlink_to(home / ".ssh" / "id_ed25519")
    (shared / "way").symlink_to(home)
    (shared / "inner").symlink_to("report.txt")
    (shared / "report\n.txt").touch()
    os.mkfifo(shared / "pipe")
    monkeypatch.setenv("HOME", str(home))
    return home


def folders_of(home: Path) -> Folders:
    return Folders([home / "Shared"], ["*.key", "private", "deep/s*"])


@pytest.mark.parametrize(
    "text",
    [
        "{}/report.txt",
        "file://{}/report.txt",
        "file:{}/report.txt",
        "FILE://localhost{}/report.txt",
        "report.txt",
        "./report.txt",
        "{}//./report.txt",
        "~/Shared/report.txt",
        "{}/deep/größe.txt",
    ],
)
def test_a_file_of_the_folder_is_opened(text: str, home: Path) -> None:
    """By its path, relative to the folder too, and by a URI."""
    opened = folders_of(home).opened(text.format(home / "Shared"))
    assert opened is not None
    with opened.content:
        assert opened.content.read() == b"fine" and opened.name == Path(text).name


def test_a_path_may_begin_where_the_host_works(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name of the folder in it; it is judged as any other, and other texts there are no paths."""
    monkeypatch.chdir(home)
    folders = folders_of(home)
    opened = folders.opened("Shared/report.txt")
    assert opened is not None
    opened.content.close()
    for text, why in (
        ("Shared/missing.txt", "no such file"),
        ("Shared/../.ssh/id_ed25519", "with .."),
        ("Shared/way/.ssh/id_ed25519", "hidden"),
        ("Shared/link", "link"),
        ("Shared/.env", "hidden"),
    ):
        with pytest.raises(NotAllowed, match=why):
            folders.opened(text)
    for text in ("Sharedness/x", ".", "Shared", "id_ed25519"):
        assert folders.opened(text) is None
    monkeypatch.chdir(home / "Shared" / ".ssh")
    assert folders_of(home).opened("id_ed25519") is None


def test_a_uri_has_its_escapes(home: Path) -> None:
    """As browsers write them."""
    opened = folders_of(home).opened(f"file://{quote(str(home))}/Shared/deep/{quote('größe.txt')}")
    assert opened is not None
    opened.content.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{home}/.ssh/id_ed25519", "go up only from"),
        ("~/.ssh/id_ed25519", "go up only from"),
        ("~root/.ssh/id_ed25519", "go up only from"),
        ("file://{home}/.ssh/id_ed25519", "go up only from"),
        ("file:///proc/self/environ", "go up only from"),
        ("file://{home}/%2essh/id_ed25519", "go up only from"),
        ("file://evil.example{home}/Shared/report.txt", "another machine"),
        ("{home}/Shared/../.ssh/id_ed25519", "with .."),
        ("file://{home}/Shared/%2e%2e/.ssh/id_ed25519", "with .."),
        ("../.ssh/id_ed25519", "with .."),
        ("deep/../../.ssh/id_ed25519", "with .."),
        ("{home}/Sharedness/x", "go up only from"),
        ("//{home}/.ssh/id_ed25519", "go up only from"),
        ("{home}/shared/../.ssh/id_ed25519", "go up only from"),
        ("{home}/Shared", "go up only from"),
        ("link", "link"),
        ("{home}/Shared/link", "link"),
        ("inner", "link"),
        ("way/.ssh/id_ed25519", "hidden"),
        ("way/Shared/report.txt", "link"),
        ("{home}/Shared/way/Shared/report.txt", "link"),
        (".env", "hidden"),
        (".ssh/id_ed25519", "hidden"),
        ("{home}/Shared/.SSH/id_ed25519", "hidden"),
        ("\u200c.ssh/id_ed25519", "hidden"),
        ("\uff0essh/id_ed25519", "hidden"),
        ("Server.KEY", "--deny"),
        ("Server.k\u0435y\u200b/../Server.KEY", "with .."),
        ("Server.\u212aEY", "--deny"),
        ("Private/a.txt", "--deny"),
        ("{home}/Shared/PRIVATE/a.txt", "--deny"),
        ("deep/secret.txt", "--deny"),
        ("pipe", "no regular file"),
        ("deep", "no regular file"),
        ("report.txt/x", "link"),
        ("{home}/Shared/missing.txt", "no such file"),
        ("{home}/Shared/a\0b", "line break or NUL"),
        ("report\n.txt", "line break or NUL"),
        ("{home}/Shared/report.txt\u202e", "no such file"),
    ],
)
def test_nothing_else_is_opened(text: str, why: str, home: Path) -> None:
    """Whatever way a path takes: the model is told why."""
    with pytest.raises(NotAllowed, match=re.escape(why)):
        folders_of(home).opened(text.format(home=home))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "upload://demo/1",
        "artifact://demo/1",
        "https://x.example/a",
        "data:text/plain,x",
        "/9j/4AAQSkZJRgABAQ==",
        "no such thing",
        "a\nb",
        "a\0b",
        "file:///a%00b",
        "\ud800",
        "x" * 300,
        "x" * 10_000,
    ],
)
def test_what_is_no_path_passes(text: str, home: Path) -> None:
    """Handles, addresses, content, and texts that name no file of the folder."""
    assert folders_of(home).opened(text) is None


@pytest.mark.parametrize(
    "pattern",
    ["deep/", "./deep", "/deep", "**/deep", "**/größe.txt", "deep/**", "{}/deep", "{}/deep/", "{}/D*/*.txt"],
)
def test_a_pattern_may_be_spelled_as_people_do(pattern: str, home: Path) -> None:
    """As a folder, from the folder on, at any depth, or by its whole path; no other file is denied by it."""
    folders = Folders([home / "Shared"], [pattern.format(home / "Shared")])
    with pytest.raises(NotAllowed, match="--deny"):
        folders.opened("deep/größe.txt")
    opened = folders.opened("report.txt")
    assert opened is not None
    opened.content.close()


def test_a_pattern_from_the_folder_on_is_no_name(home: Path) -> None:
    """What has that name further below is not denied, nor what is at the top by a pattern for what is below."""
    opened = Folders([home / "Shared"], ["/größe.txt", f"{home}/Shared/größe.txt"]).opened("deep/größe.txt")
    assert opened is not None
    opened.content.close()
    opened = Folders([home / "Shared"], ["*/*"]).opened("report.txt")
    assert opened is not None
    opened.content.close()


def test_normal_forms_of_a_name_lead_nowhere_else(home: Path) -> None:
    """Where a file system takes them for one name, what is opened is judged by the name on the disk."""
    other = unicodedata.normalize("NFD", "deep/größe.txt")
    opened = folders_of(home).opened(other)
    if opened is not None:
        with opened.content:
            assert opened.content.read() == b"fine"


def test_a_device_is_not_opened(tmp_path: Path) -> None:
    """Also not in a folder that has them."""
    with pytest.raises(NotAllowed, match="no regular file"):
        Folders([Path("/dev")], []).opened("/dev/null")


def test_a_file_that_is_replaced_stays_the_one_that_was_judged(home: Path) -> None:
    """What is read is the descriptor, whatever has the name by then."""
    shared = home / "Shared"
    opened = folders_of(home).opened("report.txt")
    assert opened is not None
    (shared / "report.txt").unlink()
    (shared / "report.txt").symlink_to(home / ".ssh" / "id_ed25519")
    with opened.content:
        assert opened.content.read() == b"fine"


def test_a_file_that_is_swapped_all_the_time_gives_nothing_away(home: Path) -> None:
    """A folder and a link to another one take each other's place while files are opened."""
    place, kept, elsewhere = home / "Shared" / "key", home / "Shared" / "kept", home / "keys"
    for folder, content in ((place, b"fine"), (elsewhere, SECRET)):
        folder.mkdir()
        (folder / "id_ed25519").write_bytes(content)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            place.rename(kept)
            place.symlink_to(elsewhere)
            place.unlink()
            kept.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    folders = folders_of(home)
    try:
        for _ in range(1000):
            with contextlib.suppress(NotAllowed):
                opened = folders.opened(f"{place}/id_ed25519")
                assert opened is not None
                with opened.content:
                    assert opened.content.read() == b"fine"
    finally:
        over.set()
        swapping.join()


def test_the_inner_of_two_folders_counts(home: Path) -> None:
    """A hidden folder that is named itself is not hidden."""
    folders = Folders([home / "Shared", home / "Shared" / ".ssh"], [])
    opened = folders.opened(str(home / "Shared" / ".ssh" / "id_ed25519"))
    assert opened is not None
    opened.content.close()


def test_a_folder_that_a_link_leads_to_is_named_by_either(home: Path, tmp_path: Path) -> None:
    """By the link as the person wrote it, and by where it leads."""
    (tmp_path / "docs").symlink_to(home / "Shared")
    folders = Folders([tmp_path / "docs"], [])
    for place in (tmp_path / "docs", home / "Shared"):
        opened = folders.opened(str(place / "report.txt"))
        assert opened is not None
        opened.content.close()


def test_a_folder_that_is_none_is_refused(home: Path) -> None:
    """When the command starts."""
    for name in ("missing", "report.txt"):
        with pytest.raises(OSError):
            Folders([home / "Shared" / name], [])
