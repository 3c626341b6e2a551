"""``core.replica``: names and addresses that can be used, and sentences for all others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from adapter.settings.core import ReplicaSettings


@pytest.mark.parametrize("name", ["a", "pod-3.adapter_1", "A" * 64])
def test_an_id(name: str) -> None:
    """Letters, digits, dots, underscores and hyphens."""
    assert ReplicaSettings(id=name).id == name


@pytest.mark.parametrize("name", ["a b", "a/b", "a:b", "ä", "a" * 65])
def test_what_is_no_id(name: str) -> None:
    """It goes into keys, header fields and ids of sessions."""
    with pytest.raises(ValidationError, match="must be 1 to 64"):
        ReplicaSettings(id=name)


def test_blank_is_unset() -> None:
    """As from a variable of the environment that is empty."""
    empty = ReplicaSettings.model_validate({"id": "", "address": " "})
    assert (empty.id, empty.address) == (None, None)


@pytest.mark.parametrize(
    "address", ["host", "host:1", "10.0.0.1", "[::1]:80", "http://host", "https://host:444"]
)
def test_an_address(address: str) -> None:
    """A host, with or without a port, or a URL."""
    assert ReplicaSettings(address=address).address == address
    assert ReplicaSettings(address="https://host/").address == "https://host"


@pytest.mark.parametrize(
    "address", ["a b", "host:x", "ftp://host", "http://u@host", "http://host/path", "host?q", ":1"]
)
def test_what_is_no_address(address: str) -> None:
    """Other replicas could not connect to it."""
    with pytest.raises(ValidationError, match="must be a URL"):
        ReplicaSettings(address=address)
