"""A connector's ``options``, each read once; what nobody reads is a mistake and is said so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from adapter.hosted.connectors.port import ConnectorFailed


class ConnectorOptions:
    """The options of one connector. Every method raises ConnectorFailed for a value that cannot be; the sentence
    names the option, never its value."""

    def __init__(self, kind: str, name: str, options: Mapping[str, Any]) -> None:
        self._left = dict(options)
        self._whose = f"connector '{name}' ({kind})"

    def text(self, option: str) -> str | None:
        value = self._left.pop(option, None)
        return None if value is None else _spelled(value)

    def one_of(self, option: str, choices: Sequence[str]) -> str | None:
        value = self.text(option)
        if value is None:
            return None
        if value.lower() not in choices:
            self._refuse(option, f"is one of {', '.join(choices)}")
        return value.lower()

    def pool_size(self, *, default: int) -> int:
        """Return the number of connections that may be open at once, at least 1."""
        value = self.text("pool_size")
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            self._refuse("pool_size", "is a whole number from 1")
        return int(value)

    def rest(self) -> dict[str, str]:
        """All that was not read, for a driver that knows what to do with it."""
        rest, self._left = {key: _spelled(value) for key, value in self._left.items()}, {}
        return rest

    def done(self) -> None:
        """Raises ConnectorFailed for an option that nobody has read."""
        if self._left:
            self._refuse(min(self._left), "is not known")

    def _refuse(self, option: str, why: str) -> NoReturn:
        raise ConnectorFailed(f"{self._whose}: option '{option}' {why}")


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
