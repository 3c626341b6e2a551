"""The address that a process is asked at whose settings cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.settings.file.yaml_text import EVERYWHERE, listen_address

WRITTEN = "core: {host: 10.0.0.1, port: '${PORT:-9000}', nonsense: 1}\nservers: 7\n"


@pytest.mark.parametrize(
    ("text", "overrides", "environ", "address"),
    [
        (WRITTEN, {}, {}, ("10.0.0.1", 9000)),
        (WRITTEN, {}, {"PORT": "9001"}, ("10.0.0.1", 9001)),
        (WRITTEN, {}, {"adapter_core__port": "9002"}, ("10.0.0.1", 9002)),
        (WRITTEN, {"core.port": "9003", "core.host": "::1"}, {"ADAPTER_CORE__PORT": "9002"}, ("::1", 9003)),
        (WRITTEN, {"core.port": "many"}, {"ADAPTER_CORE__PORT": "70000"}, ("10.0.0.1", 9000)),
        ("core: {host: '${HOST}', port: 0}", {}, {}, ("127.0.0.1", 8932)),
        ("core: [1]", {}, {}, ("127.0.0.1", 8932)),
        ("core: {host: 3, port: true}", {}, {}, ("127.0.0.1", 8932)),
        ("", {}, {}, ("127.0.0.1", 8932)),
        ("core: {", {}, {}, (EVERYWHERE, 8932)),
        (None, {}, {}, (EVERYWHERE, 8932)),
        (None, {"core.host": "127.0.0.1"}, {}, ("127.0.0.1", 8932)),
    ],
)
def test_the_address_is_read_as_far_as_it_can_be(
    text: str | None,
    overrides: dict[str, str],
    environ: dict[str, str],
    address: tuple[str, int],
    tmp_path: Path,
) -> None:
    """Flags, variables and the file count in this order; what is no address is passed over."""
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)
    assert listen_address(file, overrides, environ) == address


def test_no_file_is_no_obstacle() -> None:
    """Settings may be in variables alone."""
    assert listen_address(None, {}, {"ADAPTER_CORE__PORT": "9000"}) == ("127.0.0.1", 9000)
