"""Content that threads take from a form, beside what python_multipart alone finds in it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from python_multipart.multipart import MultipartParser

from adapter.edge.files.multipart import FileBegins, Form, Mark, content_in

BOUNDARY = b"--frontier"
DELIMITER = b"\r\n--" + BOUNDARY
HEAD = b'\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

lookalikes = st.integers(0, len(DELIMITER) - 1).map(lambda size: DELIMITER[:size])
contents = st.lists(
    st.one_of(lookalikes, st.sampled_from([b"\r", b"\n", b"-", DELIMITER + b"x"]), st.binary(max_size=40)),
    max_size=12,
).map(b"".join)
sizes = st.lists(st.integers(1, 90), min_size=1, max_size=30)


class Line:
    """Bytes on their way: ``receive`` gives of them what the next of ``sizes`` allows, and now and then nothing."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self.left = data
        self.received = 0
        self._sizes = sizes
        self._turn = 0

    def receive(self, block: memoryview) -> int:
        self._turn += 1
        size = self._sizes[self._turn % len(self._sizes)]
        piece = self.left[: min(size, len(block))] if size % 3 else b""
        block[: len(piece)] = piece
        self.left = self.left[len(piece) :]
        self.received += len(piece)
        return len(piece)


def feed(form: Form, chunk: bytes, files: list[bytes]) -> None:
    """Give a form its next bytes; the content that it finds in them joins that of ``files``."""
    for event in form.feed(chunk):
        if isinstance(event, FileBegins):
            files.append(b"")
        elif event is not Mark.FILE_ENDS:
            assert isinstance(event, bytes)
            files[-1] += event


def by_python_multipart(form: bytes) -> list[bytes]:
    """The content of each part of a form."""
    found: list[bytearray] = []
    parser = MultipartParser(
        BOUNDARY,
        {
            "on_part_begin": lambda: found.append(bytearray()),
            "on_part_data": lambda data, start, end: found[-1].extend(data[start:end]),
        },
    )
    parser.write(form)
    return [bytes(part) for part in found]


def by_us(data: bytes, sizes: Sequence[int]) -> tuple[list[bytes], int]:
    """The same, each file's content received from the line as soon as it can be; and how many bytes were fed."""
    form, line, files, fed = Form(BOUNDARY, beside=len(data)), Line(data, sizes), list[bytes](), 0
    chunk = b""
    while line.left or chunk:
        if not chunk:
            block = bytearray(sizes[0])
            chunk = bytes(block[: line.receive(memoryview(block))])
        fed += len(chunk)
        feed(form, chunk, files)
        chunk = b""
        if form.amid_file:
            content = form.content(line.receive)
            for most in sizes:
                block = bytearray(90)
                count = content.read(block, most)
                assert count <= most
                files[-1] += block[:count]
            chunk = content.rest
    form.end()
    return files, fed


@given(first=contents, second=contents, sizes=sizes)
@example(first=b"", second=(DELIMITER + b"x") * 200, sizes=[60])
def test_threads_find_the_content_that_the_parser_finds(
    first: bytes, second: bytes, sizes: list[int]
) -> None:
    """However it is cut, and though it is full of what nearly is the delimiter."""
    whole = b"--" + BOUNDARY + HEAD + first + DELIMITER + HEAD + second + DELIMITER + b"--\r\n"
    sizes = [*sizes, 89]  # so that something comes in the end

    files, fed = by_us(whole, sizes)

    assert files == by_python_multipart(whole) == [first, second]
    # What a thread received and was no content is read once more, and nothing is read a third time.
    assert fed <= len(whole)


@given(block=contents, size=st.integers(0, 200))
def test_content_holds_no_part_of_a_delimiter(block: bytes, size: int) -> None:
    """Content has no delimiter in it, and what is kept back, and nothing else, may be one's beginning."""
    size = min(size, len(block))
    found = content_in(block, size, DELIMITER)
    content, rest = block[: found.size], block[found.size : size]

    assert DELIMITER not in content
    assert rest.startswith(DELIMITER) if found.ended else DELIMITER.startswith(rest)
    if not rest:
        assert not any(content.endswith(DELIMITER[:count]) for count in range(1, len(DELIMITER)))
