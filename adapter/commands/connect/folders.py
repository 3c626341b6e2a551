"""The folders of this machine from which a person lets files go up, and the way in which one is opened there.

A path comes from a model, and what the model read comes from anybody. So nothing but a regular file in one of the
folders is opened: step by step, following no link, and judged by the descriptor that is read afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

from adapter.rules.text.unicode import shown

_LONGEST_PATH = 4096
_LONGEST_SHOWN = 200
_JPEG = "/9j/"
"""Base64 of each JPEG picture begins with it; arguments that take handles may take content as well."""

_STEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotAllowed(Exception):
    """A path whose file does not go up; ``str(error)`` is a sentence for the model."""


class OpenedFile(NamedTuple):
    """A file under the name that it goes up with."""

    name: str
    content: BinaryIO


class Folders:
    """Opens files in ``folders``, but none that is hidden or that a pattern of ``deny`` names, also not below such."""

    def __init__(self, folders: Sequence[Path], deny: Sequence[str]) -> None:
        """Raises OSError for a folder that is none."""
        self._here = Path.cwd()
        roots = [(folder.absolute(), folder.resolve(strict=True)) for folder in folders]
        # Of two folders of which one is in the other, the inner one was meant for what is in it.
        self._roots = sorted(roots, key=lambda names: -len(names[1].parts))
        for _, root in self._roots:
            os.close(os.open(root, _STEP | os.O_DIRECTORY))
        self._deny = [form for pattern in deny for form in self._forms(_plain(pattern))]

    @property
    def shown(self) -> str:
        """The folders, as a sentence lists them."""
        return ", ".join(str(given) for given, _ in self._roots)

    def opened(self, text: str) -> OpenedFile | None:
        """Open the file of a path or a ``file:`` URI; None for a text that is neither. Raises NotAllowed."""
        path = _path_in(text)
        if path is None:
            self._judge_content(text)
            return None
        absolute = path.is_absolute()
        if not absolute and (found := self._relative(text, path.parts)) is not None:
            return found
        # Models that know where their host works write a path from there, too: with the name of the folder in it.
        found = self._below(text, self._here / path, None if absolute else len(path.parts))
        if found is None and absolute:
            raise self._outside(text)
        return found

    def _forms(self, pattern: str) -> Iterator[str]:
        """What people mean by a pattern: also by one that ends as a folder, and by one with the folder before it."""
        form = pattern.removeprefix("./").rstrip("/")
        yield form
        if form.startswith("**/"):
            yield form.removeprefix("**/")
        for root in {_plain(str(root)).rstrip("/") for names in self._roots for root in names}:
            if form.startswith(f"{root}/"):
                yield form.removeprefix(root)

    def _judge_content(self, text: str) -> None:
        """Raise NotAllowed for the name of a file, or a whole path into a folder, that only its characters keep from
        being a path: text with line breaks is content elsewhere.
        """
        if len(text) > _LONGEST_PATH or not ("\n" in text or "\0" in text):
            return
        for root in {str(root) for names in self._roots for root in names}:
            whole = os.path.normpath(os.path.join(root, text))  # noqa: PTH118 (a Path takes no NUL)
            if whole.startswith(f"{root}/") and (text.startswith("/") or os.path.lexists(whole)):
                raise NotAllowed(
                    f"{_short(text)} is not uploaded: a path with a line break or NUL is not taken. Rename the file."
                )

    def _relative(self, text: str, parts: Sequence[str]) -> OpenedFile | None:
        """Of a relative path in the first folder that has it; None where none has: it may be any other text."""
        for _, root in self._roots if parts else ():
            with contextlib.suppress(FileNotFoundError):
                return self._at(text, root, parts)
        return None

    def _below(self, text: str, path: Path, given: int | None) -> OpenedFile | None:
        """Of a whole path, None outside of the folders. Of ``given`` parts, that a text has, one must be the folder."""
        parts = path.parts
        for names in self._roots:
            for root in names:
                length = len(root.parts)
                below = parts[length:]
                if parts[:length] == root.parts and below and (given is None or len(below) < given):
                    try:
                        return self._at(text, names[1], below)
                    except FileNotFoundError:
                        raise NotAllowed(f"{_short(text)} is not uploaded: there is no such file.") from None
        return None

    def _at(self, text: str, root: Path, parts: Sequence[str]) -> OpenedFile:
        if ".." in parts:
            raise NotAllowed(f"{_short(text)} is not uploaded: a path with .. is not followed.")
        self._judge(text, parts)
        try:
            number = _opened(root, parts)
        except FileNotFoundError:
            raise
        except OSError as failure:
            if failure.errno == errno.ENAMETOOLONG:
                raise FileNotFoundError from None
            raise NotAllowed(f"{_short(text)} is not uploaded: {_reason(failure)}.") from None
        try:
            # Names of another case, of another normal form or short ones lead to the same file on some systems.
            real = _real_path(number)
            if real is not None:
                if real.parts[: len(root.parts)] != root.parts:
                    raise self._outside(text)
                self._judge(text, real.parts[len(root.parts) :])
            return OpenedFile(parts[-1], os.fdopen(number, "rb"))
        except NotAllowed:
            os.close(number)
            raise

    def _judge(self, text: str, parts: Sequence[str]) -> None:
        plain = [_plain(part) for part in parts]
        paths = ["/".join(["", *plain[: length + 1]]) for length in range(len(plain))]
        names = [*plain, *(path[1:] for path in paths)]
        if any(part.startswith(".") for part in plain):
            raise NotAllowed(f"{_short(text)} is not uploaded: hidden files and folders stay here.")
        # A pattern that begins with a slash begins in the folder.
        judged = ((pattern, paths if pattern.startswith("/") else names) for pattern in self._deny)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern, those in judged for name in those):
            raise NotAllowed(f"{_short(text)} is not uploaded: --deny of mcp-adapter connect names it.")

    def _outside(self, text: str) -> NotAllowed:
        return NotAllowed(
            f"{_short(text)} is not uploaded: files go up only from {self.shown}. The person who starts "
            "mcp-adapter connect names others with --folder."
        )


def _path_in(text: str) -> Path | None:
    """The path that a text is, None for what is no path, such as a handle. Raises NotAllowed for a URI of elsewhere."""
    scheme, colon, rest = text[:_LONGEST_PATH].partition(":")
    if not text or len(text) > _LONGEST_PATH or "\0" in text or "\n" in text:
        return None
    if text.startswith(_JPEG):
        return None
    path = text
    if colon and scheme.lower() == "file":
        if rest.startswith("//"):
            host, _, rest = rest[2:].partition("/")
            if host.lower() not in ("", "localhost"):
                raise NotAllowed(f"{_short(text)} is not uploaded: it names another machine.")
            rest = f"/{rest}"
        path = unquote(rest)
    elif colon and (rest.startswith("//") or scheme.lower() == "data"):
        return None
    try:
        return None if b"\0" in os.fsencode(path) else Path(path).expanduser()
    except (UnicodeEncodeError, RuntimeError):
        return None  # no text that a name can have, or the home of nobody


def _opened(root: Path, parts: Sequence[str]) -> int:
    """A descriptor of the regular file at ``parts`` below a folder. Raises OSError, for links too."""
    with contextlib.ExitStack() as steps:
        folder = os.open(root, _STEP | os.O_DIRECTORY)
        steps.callback(os.close, folder)
        for part in parts[:-1]:
            folder = os.open(part, _STEP | os.O_DIRECTORY, dir_fd=folder)
            steps.callback(os.close, folder)
        # A device or a pipe may do something when it is opened, so it is not.
        seen = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        _require_regular(seen)
        # One that has taken its place by now is not waited for.
        number = os.open(parts[-1], _STEP | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
        try:
            _require_regular(os.fstat(number))
        except OSError:
            os.close(number)
            raise
        return number


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "")


def _reason(failure: OSError) -> str:
    if failure.errno == errno.EINVAL:
        return "it is no regular file"
    if failure.errno in (errno.ELOOP, errno.ENOTDIR, getattr(errno, "EMLINK", 0)):
        return "it is a link, or leads through one or through a file"
    return failure.strerror or str(failure)


def _real_path(number: int) -> Path | None:
    """The path of an open file with the names that it has on the disk; None where the system does not tell it."""
    with contextlib.suppress(OSError):
        if sys.platform == "darwin":
            return Path(os.fsdecode(fcntl.fcntl(number, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        if sys.platform == "linux":
            return Path(f"/proc/self/fd/{number}").readlink()
    return None


def _plain(name: str) -> str:
    """A name as the most generous file system compares it: without case, normal form and what is invisible."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(each for each in folded if unicodedata.category(each) != "Cf")


def _short(text: str) -> str:
    return shown(text, _LONGEST_SHOWN)
