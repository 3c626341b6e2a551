"""Withholding: the store's paths in every spelling, and nothing that only looks like one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.filenames import STEP, search
from adapter.rules.files.redaction import LOOK, WITHHELD, Redaction

ROOTS = ["/srv/ad apter/data", "/srv/data"]
OWN = "/srv/data/artifacts/5c/a1/my shot (1) 名.png"
PLAIN = "/srv/data/artifacts/5c/a2/page.pdf"
A, B, C = "a" * 32, "0123456789abcdef" * 2, "c" * 32
HELD = f"/srv/data/artifacts/{A}/{B}/my shot (1) 名.png"
SIMPLE = f"/srv/data/artifacts/{A}/{C}/page.pdf"
HANDED = f"/srv/data/uploads/{A}/{C[:31]}0/note.txt"
KNOWN = {
    OWN: "artifact://own",
    PLAIN: "artifact://page",
    HELD: "artifact://held",
    SIMPLE: "artifact://simple",
    HANDED: "upload://note",
}


def withhold(text: str, roots: Sequence[str], known: Mapping[str, str]) -> str:
    return Redaction(roots, known)(text)


def seen(text: str) -> str:
    return withhold(text, ROOTS, KNOWN)


KNOWN_PATHS = [
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
]
"""A known path becomes its URI, however a program spells it, and whatever stands around it."""


OTHER_PATHS = [
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
]
"""Of uploads, other scopes and the state only that something was there is told."""


NO_PATHS = [
    "",
    "/srv/database /srv/data-old /srv/data2/x /srv/data.tar /srv/data%20x/y",
    "/mnt/srv/data/x ./srv/data/x ~/srv/data/x ${HOME}/srv/data/x",
    "https://example.com/srv/data/x",
    "http://srv/data/x https%3A%2F%2Fsrv%2Fdata%2Fx",
    "C:\\srv\\data\\x \\srv\\data\\x",
    "srv/data/x and the word data",
]
"""Paths and URLs that have the root's name elsewhere in them are not the store's."""


SHOT, BOOK = HELD.removeprefix("/srv/data/"), SIMPLE.removeprefix("/srv/data/")


KNOWN_PLACES = [
    (f"[Screenshot](../../data/{SHOT})", "[Screenshot](artifact://held)"),
    (f"path: './../ad apter/data/{BOOK}',", "path: 'artifact://simple',"),
    (f"- [Page](./{BOOK}) {BOOK}. and more", "- [Page](artifact://simple) artifact://simple. and more"),
    (f"/mnt/other/{BOOK} ~/x/{BOOK} /mnt/名/{BOOK}", "artifact://simple artifact://simple artifact://simple"),
    (f"file:///mnt/{BOOK} file:../{BOOK}", "artifact://simple artifact://simple"),
    (f"../../data/{quote(SHOT)}", "artifact://held"),
    (f"?path={quote('../data/' + SHOT, safe='')}&x", "?path=artifact://held&x"),
    (f"http://h/view?path=../data/{BOOK}", "http://h/view?path=artifact://simple"),
    (json.dumps({"path": f"../data/{SHOT}"}), '{"path": "artifact://held"}'),
    (f"..\\/data\\/{BOOK}".replace("/", "\\/"), "artifact://simple"),
    (f"done\\n../data/{BOOK}\\n{BOOK}\\nnext", "done\\nartifact://simple\\nartifact://simple\\nnext"),
    (f"保存到../data/{BOOK}，保存到/mnt/{BOOK}中。", "保存到artifact://simple，保存到artifact://simple中。"),
    (f"--out=../x/{BOOK} a:../x/{BOOK}", "--out=artifact://simple a:artifact://simple"),
    (f"setFiles(['../{HANDED[5:]}'])", "setFiles(['upload://note'])"),
]
"""Relative to whatever directory, or below a root as another machine has it, the whole path becomes the URI."""


OTHER_PLACES = [
    (f"cannot open ../data/uploads/{B}/{A}/x.txt: denied", "cannot open [withheld path]: denied"),
    (f"../data/{BOOK}.bak ../{BOOK}/more {BOOK}2", "[withheld path] [withheld path] [withheld path]"),
    (f"in ../data/artifacts/{A}/{C}.", "in [withheld path]."),
    (f"in ../data/artifacts/{A}/{C}/ there", "in [withheld path]/ there"),
    (f"../uploads/{A}/{C}/page.pdf", "[withheld path]"),
    (f"/mnt/artifacts/{B}/{A}/../../../state/db!", "[withheld path]!"),
]
"""Two ids in an area are the store's, whatever stands before and behind."""


NO_PLACES = [
    f"https://example.com/{BOOK} http://localhost:8931/x/{BOOK} https%3A%2F%2Fh%2F{quote(BOOK, safe='')}",
    f"my-{BOOK} xartifacts/{A}/{C}/y",
    f"artifacts/{A}/page.pdf artifacts/{A}/{C}0/y artifacts/{A.upper()}/{C}/y artifacts/{A}/{C}.tar",
    f"artifact://sessions/{A}/{C}/page.pdf upload://sessions/{A}/{C}",
    "the artifacts and uploads of a build",
]
"""URLs, other names, other ids."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(*KNOWN_PATHS, *OTHER_PATHS, *KNOWN_PLACES, *OTHER_PLACES),
        *((text, text) for text in (*NO_PATHS, *NO_PLACES)),
    ],
)
def test_a_text_shows_the_uris_of_known_files_alone(text: str, expected: str) -> None:
    """Every other path of the store is withheld, and what only looks like one stays."""
    assert seen(text) == expected


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
    """A file outside the store is not the store's, and its path stays."""
    assert (
        withhold("/tmp/out/a.png", ["/srv", "/tmp/o"], {"/tmp/out/a.png": "artifact://a"}) == "/tmp/out/a.png"
    )


def test_a_known_path_under_the_other_spelling_of_the_root() -> None:
    """Tools may resolve the links on the way to the root, or not."""
    other = PLAIN.replace("/srv/data", "/srv/ad apter/data")
    assert (
        seen(f"{other} {HELD.replace('/srv/data', '/srv/ad apter/data')}")
        == "artifact://page artifact://held"
    )


@pytest.mark.parametrize("root", ["", "/"])
def test_the_whole_disk_is_no_root(root: str) -> None:
    """A root that would withhold every path withholds none."""
    assert withhold("/etc/passwd", [root], {}) == "/etc/passwd"


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
        "a" * 1_000_000 + f" ../artifacts/{A}/{B}/x",
        "a" * 1_000_000 + f"/artifacts/{A}/{B}/x",
        f"artifacts/{A}/{B}/x " * 12_000,
        f"artifacts/{A}/{B}/" * 12_000,
        f"http://artifacts/{A}/{B}/" * 12_000,
        "artifacts/" * 100_000,
        "\\n" * 400_000 + f"/artifacts/{A}/{B}/",
        "%2F" * 300_000 + f"artifacts/{A}/{B}/",
        ":=" * 400_000 + f"artifacts/{A}/{B}/",
        f"{BOOK} ../x/{SHOT} {HANDED} " * 4000,
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


class Watched(bytes):
    """A message that notes how many bytes each search looked at."""

    looked: list[int]

    def find(self, *args: Any) -> int:
        """See bytes."""
        self.looked.append(args[2] - args[1])
        return super().find(*args)

    def __contains__(self, part: object) -> bool:
        self.looked.append(len(self))
        return super().__contains__(part)  # type: ignore[operator]


@pytest.mark.parametrize("at", [0, LOOK - 8, LOOK - 7, LOOK - 1, LOOK, 3 * LOOK - 9])
def test_a_long_message_is_searched_in_pieces(at: int) -> None:
    """No search looks at megabytes at once, and none passes over what lies in two pieces."""
    redaction = Redaction(ROOTS, {})
    clean = Watched(b"z" * 3 * LOOK)
    clean.looked = []
    assert redaction.spares(clean)
    assert max(clean.looked) < 2 * LOOK
    for needle in (b"artifacts", b"uploads", b"\\u00"):
        assert not redaction.spares(b"z" * at + needle + b"z" * (3 * LOOK - at))


NEAR = st.lists(
    st.one_of(
        st.sampled_from(
            [OWN, PLAIN, HELD, SIMPLE, SHOT, BOOK, quote(HELD), quote(SHOT, safe=""), "/srv/data"]
        ),
        st.sampled_from(["artifacts", "/", "\\", "\\/", "%2F", "%2f", " ", "file://", "http://h/", ".", "x"]),
        st.sampled_from(["名", "\\u540d", "\\n", "=", "a" * 31, A, "é"]),
    ),
    max_size=12,
).map("".join)


@given(NEAR, st.integers(0, 600))
def test_a_long_text_is_seen_in_pieces_as_a_short_one_is(text: str, back: int) -> None:
    """However a text lies across the pieces in which a long one is looked through, the same of it is withheld."""
    before, behind = "\n" * (STEP - back), "\n" * STEP
    assert seen(before + text + behind) == before + seen(text) + behind


@given(st.integers(STEP - 300, STEP + 300), st.sampled_from(["x", "\\/", "\\u540d", "/", "."]))
def test_a_path_of_any_length_is_withheld_whole(size: int, unit: str) -> None:
    """The path below a root is looked through in pieces too, which end within no escape."""
    path = "/srv/data/y" + unit * size + "y"
    assert seen(f"{path}. {path}") == f"{WITHHELD}. {WITHHELD}"


def test_no_look_at_a_long_text_is_long() -> None:
    """Other threads wait for the end of each search of an expression, so that each sees a part of the text only."""
    looks: list[int] = []

    class Counted:
        def search(self, text: str, at: int, end: int) -> Any:
            looks.append(end - at)
            return re.compile("needle").search(text, at, end)

    pattern: Any = Counted()
    text = "x" * 5 * STEP + "needle" + "x" * STEP
    found = search(pattern, text, 0, 6)
    assert found is not None and found.start() == 5 * STEP
    assert search(pattern, text, 5 * STEP + 1, 6) is None
    assert max(looks) == STEP + 6
