"""Withholding: the store's paths in every spelling, and nothing that only looks like one."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.redaction import WITHHELD, withhold

ROOTS = ["/srv/ad apter/data", "/srv/data"]
OWN = "/srv/data/artifacts/5c/a1/my shot (1) 名.png"
PLAIN = "/srv/data/artifacts/5c/a2/page.pdf"
KNOWN = {OWN: "artifact://own", PLAIN: "artifact://page"}


def seen(text: str) -> str:
    return withhold(text, ROOTS, KNOWN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Saved to {PLAIN}.", "Saved to artifact://page."),
        (f"[Shot](file://{PLAIN})", "[Shot](artifact://page)"),
        (f"file:{PLAIN} file://localhost{PLAIN}", "artifact://page artifact://page"),
        (f"{OWN}: 3 bytes", "artifact://own: 3 bytes"),
        (f"{quote(OWN)}?x", "artifact://own?x"),
        (f"file://{quote(OWN).lower()}", "artifact://own"),
        (f"http://h/view?path={quote(OWN, safe='')}", "http://h/view?path=artifact://own"),
        (json.dumps({"path": OWN}), '{"path": "artifact://own"}'),
        (json.dumps(json.dumps({"path": OWN})), '"{\\"path\\": \\"artifact://own\\"}"'),
        (json.dumps(OWN).replace("/", "\\/"), '"artifact://own"'),
        (OWN.replace(" ", "\\ ").replace("(", "\\(").replace(")", "\\)"), "artifact://own"),
        (PLAIN.replace("/", "//"), "artifact://page"),
        (f"保存到{PLAIN}中。", "保存到artifact://page中。"),
        (f"\x1b[1m{PLAIN}\x1b[0m **{PLAIN}**", "\x1b[1martifact://page\x1b[0m **artifact://page**"),
        (f"done\\n{PLAIN}\\nnext", "done\\nartifact://page\\nnext"),
        (f"-o{PLAIN} --out={PLAIN} a:{PLAIN}", "-oartifact://page --out=artifact://page a:artifact://page"),
    ],
)
def test_a_known_path_becomes_its_uri(text: str, expected: str) -> None:
    """However a program spells it, and whatever stands around it."""
    assert seen(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot open /srv/data/uploads/77/b/x.txt: denied", "cannot open [withheld path]: denied"),
        ("in /srv/data.", "in [withheld path]."),
        ("in /srv/data/ there", "in [withheld path]/ there"),
        ("'/srv/ad apter/data/state/db'", "'[withheld path]'"),
        ("file:///srv/ad%20apter/data/state/db", "[withheld path]"),
        ("?root=%2Fsrv%2Fdata%2Fstate&x=1", "?root=[withheld path]&x=1"),
        (f"{PLAIN}.bak {PLAIN}/more {PLAIN}2", "[withheld path] [withheld path] [withheld path]"),
        ('{\\"p\\": \\"/srv/data/s\\"}', '{\\"p\\": \\"[withheld path]\\"}'),
        ("/srv/data/a\\nb /srv/data/名/前.txt。 已保存", "[withheld path]\\nb [withheld path]。 已保存"),
        ("/srv/data/a:/srv/data/b,/srv/data/c", "[withheld path],[withheld path]"),
        ("(see /srv/data/a/../../etc)!", "(see [withheld path])!"),
    ],
)
def test_another_path_below_a_root_is_withheld(text: str, expected: str) -> None:
    """Uploads, other scopes, the state: only that something was there is told."""
    assert seen(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/srv/database /srv/data-old /srv/data2/x /srv/data.tar /srv/data%20x/y",
        "/mnt/srv/data/x ./srv/data/x ~/srv/data/x ${HOME}/srv/data/x",
        "https://example.com/srv/data/x",
        "http://srv/data/x https%3A%2F%2Fsrv%2Fdata%2Fx",
        "C:\\srv\\data\\x \\srv\\data\\x",
        "srv/data/x and the word data",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    """Paths and URLs that have the root's name elsewhere in them are not the store's."""
    assert seen(text) == text


def test_a_root_of_one_component() -> None:
    """A path below it is withheld; the word itself may be anything."""
    assert (
        withhold("GET /data or /data/ or /data/x", ["/data/"], {}) == "GET /data or /data/ or [withheld path]"
    )


def test_a_longer_root_does_not_hide_a_shorter_one() -> None:
    """Where the path is not below the one it is below the other."""
    roots = ["/srv/data/x", "/srv/data"]
    assert withhold("/srv/data/xy /srv/data/x/y", roots, {}) == "[withheld path] [withheld path]"


def test_a_known_path_elsewhere() -> None:
    """A file that a tool left outside the store is told by its URI too, its neighbours are not the store's."""
    known = {"/tmp/out/a.png": "artifact://a"}
    assert withhold("/tmp/out/a.png /tmp/out/b.png", [], known) == "artifact://a /tmp/out/b.png"
    assert withhold("/tmp/out/a.png", ["/srv", "/tmp/o"], known) == "artifact://a"


@pytest.mark.parametrize("root", ["", "/"])
def test_the_whole_disk_is_no_root(root: str) -> None:
    """A root that would withhold every path withholds none."""
    assert withhold("/etc/passwd", [root], {}) == "/etc/passwd"


def test_paths_of_windows() -> None:
    """Backslashes, single or escaped, and slashes are the same there."""
    root, own = "C:\\srv\\data", "C:\\srv\\data\\a\\x.png"
    text = f"{own} {json.dumps(own)} file:///C:/srv/data/a/x.png C:\\srv\\data\\b xC:\\srv\\data\\b"
    expected = f'artifact://x "artifact://x" artifact://x {WITHHELD} xC:\\srv\\data\\b'
    assert withhold(text, [root], {own: "artifact://x"}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "/" * 1_000_000 + " data",
        "\\" * 1_000_000 + " data",
        "%2F" * 300_000 + " data",
        "/srv/data" * 100_000,
        "/srv/dat " * 100_000 + "data",
        "/srv/data/" + "a" * 1_000_000,
        "file:" * 200_000 + "data",
    ],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    """A megabyte of beginnings that come to nothing is read once."""
    assert "/srv/data" not in seen(text)


segments = st.text(
    st.characters(exclude_characters="/\\", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6
)
around = st.sampled_from(["", " ", "\n", '"', "(", "=", "到"])
spellings = st.sampled_from(
    [
        str,
        lambda path: "file://" + quote(path),
        lambda path: quote(path, safe=""),
        lambda path: json.dumps(path)[1:-1],
        lambda path: json.dumps(json.dumps(path))[3:-3],
        lambda path: json.dumps(path, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    ]
)


@given(
    st.lists(segments, min_size=1, max_size=3),
    segments,
    spellings,
    around,
    st.sampled_from(["", " ", "\n", '"', ")", ", ", ". "]),
)
def test_any_name_in_any_spelling(
    root: list[str], name: str, spelled: object, before: str, behind: str
) -> None:
    """Whatever characters a root and a file's name have, the path is found in each spelling, whole."""
    assert callable(spelled)
    base = "/" + "/".join(root)
    own = f"{base}/{name}"
    text = before + spelled(own) + behind
    assert withhold(text, [base], {own: "artifact://x"}) == f"{before}artifact://x{behind}"


@given(st.text(), st.text())
def test_text_without_the_root_stays(before: str, behind: str) -> None:
    """Nothing is changed in a text that does not name a root."""
    text = before + behind
    if "adapter-store" not in text:
        assert withhold(text, ["/var/adapter-store"], {}) == text
