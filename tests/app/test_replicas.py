"""The address by which other replicas find this one."""

from __future__ import annotations

import pytest

from adapter.app.replicas import advertised

BOUND = ("10.0.0.5", 8932)


@pytest.mark.parametrize(
    ("address", "bound", "url"),
    [
        (None, BOUND, "http://10.0.0.5:8932"),
        (None, ("::1", 1), "http://[::1]:1"),
        (None, ("adapter.local", 1), "http://adapter.local:1"),
        ("pod-3.adapter", BOUND, "http://pod-3.adapter:8932"),
        ("pod-3.adapter:9000", BOUND, "http://pod-3.adapter:9000"),
        ("[fd00::7]", BOUND, "http://[fd00::7]:8932"),
        ("https://pod-3.adapter", BOUND, "https://pod-3.adapter"),
        ("https://pod-3.adapter:444", None, "https://pod-3.adapter:444"),
        ("pod-3.adapter", None, "http://pod-3.adapter"),
        (None, None, None),
    ],
)
def test_the_settings_and_what_is_bound_make_the_address(
    address: str | None, bound: tuple[str, int] | None, url: str | None
) -> None:
    """A host gets the port that is bound; a URL is taken as it is."""
    assert advertised(address, bound) == url


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "::", ""])
def test_any_address_is_the_hosts_own(anywhere: str) -> None:
    """Others cannot connect to an address that means all."""
    url = advertised(None, (anywhere, 8932))
    assert url is not None
    assert url.startswith("http://")
    assert url.endswith(":8932")
    assert "0.0.0.0" not in url
    assert "[::]" not in url
