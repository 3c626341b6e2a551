"""Chunks that lie wholly within a file pass by the parser; wherever a form is cut, the same content comes out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.edge.files.multipart import FileBegins, Form, Mark

BOUNDARY = b"--frontier"
DELIMITER = b"\r\n--" + BOUNDARY
HEAD = b'\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

lookalikes = st.integers(0, len(DELIMITER) - 1).map(lambda size: DELIMITER[:size])
contents = st.lists(
    st.one_of(lookalikes, st.sampled_from([b"\r", b"\n", b"-", DELIMITER + b"x"]), st.binary(max_size=40)),
    max_size=12,
).map(b"".join)
cuts = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def pieces(form: bytes, sizes: list[int]) -> list[bytes]:
    """The form cut into chunks of these sizes, the last of them as often as it takes."""
    chunks = []
    for size in sizes:
        chunks.append(form[:size])
        form = form[size:]
    chunks += [form[at : at + sizes[-1]] for at in range(0, len(form), sizes[-1])]
    return [chunk for chunk in chunks if chunk]


def feed(form: Form, chunk: bytes, files: list[bytes]) -> None:
    """Give a form its next bytes; the content that it finds in them joins that of ``files``."""
    for event in form.feed(chunk):
        if isinstance(event, FileBegins):
            files.append(b"")
        elif event is not Mark.FILE_ENDS:
            assert isinstance(event, bytes)
            files[-1] += event


def arrived(form: Form, chunks: list[bytes]) -> list[bytes]:
    """The content of each file that the form brings."""
    files: list[bytes] = []
    for chunk in chunks:
        feed(form, chunk, files)
    form.end()
    return files


@given(first=contents, second=contents, sizes=cuts)
def test_content_is_the_same_wherever_the_form_is_cut(first: bytes, second: bytes, sizes: list[int]) -> None:
    """Two files full of what nearly is the delimiter come out as they were, and nothing of them counts as beside."""
    whole = b"--" + BOUNDARY + HEAD + first + DELIMITER + HEAD + second + DELIMITER + b"--\r\n"
    beside = len(whole) - len(first) - len(second)

    assert arrived(Form(BOUNDARY, beside=beside), pieces(whole, sizes)) == [first, second]
