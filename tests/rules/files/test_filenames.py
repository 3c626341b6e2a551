"""Names of files: whatever a sender writes, the disk and the header get something safe that people recognize."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.rules.files.filenames import content_disposition, default_name, stored_name

any_text = st.text(st.characters(exclude_categories=[]))  # lone surrogates too
nasty = st.text(st.sampled_from('./\\ \0\n\r"%:*?<>|~-_aé名\u202e\u200d\ufeff\u3000\ud800CONnul1$'))
file_names = any_text | nasty | st.tuples(any_text, st.integers(1, 300)).map(lambda pair: pair[0] * pair[1])
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
DEVICES = ["CON", "prn", "Aux", "NUL", "COM1", "com9", "LPT1", "lpt0", "COM¹", "CONIN$", "conout$"]


@given(file_names)
@example("..")
@example("." * 300)
@example("a" * 199 + ".")
@example("x" * 180 + "." + "y" * 180)
@example("CON" + " " * 300)
def test_a_stored_name_is_one_safe_component(filename: str) -> None:
    """No name leaves its directory, hides, is a device, is too long or holds what cannot be seen."""
    name = stored_name(filename)
    assert 1 <= len(name.encode()) <= 200
    assert not set(name) & set('/\\\0<>:"|?*')
    assert not {unicodedata.category(character) for character in name} & {"Cc", "Cs", "Zl", "Zp"}
    assert not set(name) & set(BIDI)
    assert not name.startswith((".", " "))
    assert not name.endswith((".", " "))
    assert name.partition(".")[0].rstrip().upper() not in {device.upper() for device in DEVICES}


@given(file_names)
def test_a_stored_name_stays_as_it_is(filename: str) -> None:
    """Making a safe name safe again changes nothing."""
    name = stored_name(filename)
    assert stored_name(name) == name


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30))
def test_letters_of_every_script_stay(letters: str) -> None:
    """A name of letters and digits with an extension is stored exactly so."""
    assert stored_name(f"x{letters}.txt") == f"x{letters}.txt"


@given(file_names)
def test_a_disk_takes_every_stored_name(tmp_path_factory: pytest.TempPathFactory, filename: str) -> None:
    """A real directory holds the file under that name, and nowhere else."""
    directory = tmp_path_factory.getbasetemp() / "stored"
    directory.mkdir(exist_ok=True)
    name = stored_name(filename)
    (directory / name).write_bytes(b"")
    assert [found.name for found in directory.iterdir()] == [name]
    (directory / name).unlink()


HARMLESS = [
    *("名前.txt", "résumé (1).pdf", "отчёт.docx", "تقرير.csv", "नमस्ते.md", "می‌خواهم.txt", "👩‍💻.png"),
    *("a b.txt", "archive.tar.gz", "it's 50% & more, #1 [final]~.txt", "-rf", "no extension", "conman.txt"),
    *("com10", "console.log", "e\u0301.txt", "／.txt"),
]
"""Spaces, marks, joiners and every script."""


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("../../etc/passwd", "_._.._etc_passwd"),
        ("..\\..\\boot.ini", "_._.._boot.ini"),
        ("/etc/passwd", "_etc_passwd"),
        ("C:\\Users\\me\\a.txt", "C__Users_me_a.txt"),
        ("a/b.txt", "a_b.txt"),
        ("a\0b.txt", "a_b.txt"),
        ("a\r\nb.txt", "a__b.txt"),
        ("what?.txt", "what_.txt"),
        (".bashrc", "_.bashrc"),
        (".png", "_.png"),
        ("  name.txt. . ", "name.txt"),
        ("invoice\u202egpj.exe", "invoicegpj.exe"),
        ("a\ud800.txt", "a_.txt"),
        *(
            ("", "file"),
            (".", "file"),
            ("..", "file"),
            (" . .", "file"),
            ("\u202e", "file"),
            ("\u3000", "file"),
        ),
        *((name, name) for name in HARMLESS),
    ],
)
def test_what_is_dangerous_is_replaced(filename: str, expected: str) -> None:
    """Separators and control characters become ``_``, hidden names become visible, nothing becomes ``file``;
    harmless names are left as they were."""
    assert stored_name(filename) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_no_file(device: str) -> None:
    """Windows takes these names for devices, with any extension and with blanks behind them."""
    assert stored_name(device) == f"_{device}"
    assert stored_name(f"{device}.tar.gz") == f"_{device}.tar.gz"
    assert stored_name(f"{device} .txt") == f"_{device} .txt"


def test_a_long_name_keeps_its_extension() -> None:
    """Whole characters go from the end of what is before the extension."""
    name = stored_name("名" * 100 + ".docx")
    assert name == "名" * 65 + ".docx"
    assert stored_name("a" * 500) == "a" * 200
    assert stored_name("a." + "b" * 500) == "a." + "b" * 198
    assert stored_name("a" * 199 + ". " + "b" * 500) == "a" * 199


def disposition(header: str) -> tuple[str, str]:
    """The plain name and the full name in a Content-Disposition."""
    found = re.fullmatch(
        r"""attachment; filename="([ !#$&-\[\]-~]*)"; filename\*=UTF-8''([\w.~%-]+)""", header, re.A
    )
    assert found is not None
    return found[1], unquote(found[2], errors="strict")


@given(file_names)
def test_a_disposition_is_one_plain_header(filename: str) -> None:
    """Any name gives a header that is ASCII, short, without quotes, escapes or line breaks inside its names."""
    header = content_disposition(filename)
    assert header.isascii()
    assert header.isprintable()
    assert len(header) < 900
    plain, full = disposition(header)
    assert 1 <= len(plain) == len(full)
    assert not set(full) & set("/\\" + BIDI)


@given(
    st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="/\\"), min_size=1, max_size=40)
)
def test_a_browser_reads_the_full_name(filename: str) -> None:
    """What anybody can see in a name arrives as it was."""
    assert disposition(content_disposition(filename))[1] == filename


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("shot.png", "attachment; filename=\"shot.png\"; filename*=UTF-8''shot.png"),
        ("名前.txt", "attachment; filename=\"__.txt\"; filename*=UTF-8''%E5%90%8D%E5%89%8D.txt"),
        ('a"b\\c%41.txt', "attachment; filename=\"a_b_c_41.txt\"; filename*=UTF-8''a%22b_c%2541.txt"),
        ("a;b, c's.txt", "attachment; filename=\"a;b, c's.txt\"; filename*=UTF-8''a%3Bb%2C%20c%27s.txt"),
        (
            "a\r\nSet-Cookie: b",
            "attachment; filename=\"a__Set-Cookie: b\"; filename*=UTF-8''a__Set-Cookie%3A%20b",
        ),
        ("", "attachment; filename=\"file\"; filename*=UTF-8''file"),
    ],
)
def test_what_a_disposition_looks_like(filename: str, expected: str) -> None:
    """An old client reads the plain name, every other one the full name, and nobody another header."""
    assert content_disposition(filename) == expected


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("browser_take_screenshot", "browser_take_screenshot.png"),
        ("browser_pdf_save", "browser_pdf_save.pdf"),
        ("takeScreenshots", "takeScreenshots.png"),
        ("PDFExport", "PDFExport.pdf"),
        ("html2pdf", "html2pdf.pdf"),
        ("csv_to_json", "csv_to_json.json"),
        ("export-image-svg", "export-image-svg.svg"),
        ("export_excel", "export_excel.xlsx"),
        ("speech.mp3", "speech.mp3.mp3"),
        ("read_markdown", "read_markdown.md"),
        ("fetch_text", "fetch_text.txt"),
        ("imagine", "imagine.bin"),
        ("draw", "draw.bin"),
        ("admin/save", "admin_save.bin"),
        ("保存", "保存.bin"),
        ("", "file.bin"),
    ],
)
def test_a_tool_names_its_artifact(tool: str, expected: str) -> None:
    """The extension follows the formats in the tool's name, else what it makes, else nothing is guessed."""
    assert default_name(tool, None) == expected
    assert default_name(tool, "") == expected


def test_a_known_type_is_better_than_a_guess() -> None:
    """Content that came with its type gets that type's extension; an unknown type leaves the guess."""
    assert default_name("take_screenshot", None, "image/jpeg") == "take_screenshot.jpg"
    assert default_name("take_screenshot", None, "application/x-unheard-of") == "take_screenshot.png"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("shot.png", "shot.png"), ("/tmp/out/名前.png", "名前.png"), ("C:\\out\\a.pdf", "a.pdf")),
        *(("../../x.txt", "x.txt"), ("a/b\\c.txt", "c.txt"), ("no extension", "no extension")),
        *(("a" * 200, "a" * 200), ("a" * 5000 + ".png", "a" * 196 + ".png")),
        *(
            ("out/", "save.bin"),
            ("/", "save.bin"),
            ("..", "save.bin"),
            ("a/..", "save.bin"),
            (" ", "save.bin"),
        ),
    ],
)
def test_a_caller_names_its_artifact(value: str, expected: str) -> None:
    """Of a path only its last component counts; a directory is no name."""
    assert default_name("save", value, "application/octet-stream") == expected


@given(any_text, st.none() | file_names, st.none() | any_text)
def test_there_is_always_a_name(tool: str, value: str | None, media_type: str | None) -> None:
    """Whatever tool and caller write, there is a name without a separator."""
    name = default_name(tool, value, media_type)
    assert name
    assert not set(name) & set("/\\")
    assert Path(name).name == name
