"""The shipped configuration of nginx, as tests use it."""

from __future__ import annotations

from tests.e2e.balancer import SHIPPED, rendered


def test_only_names_and_ports_differ_from_what_is_shipped() -> None:
    """Three replicas of the shipped file become two others; every other line stays, except for the address."""
    shipped = SHIPPED.read_text()
    ours = rendered(shipped, 4000, [4001, 4002])
    assert ours.count("server 127.0.0.1:") == 2
    assert "adapter-" not in ours.partition("upstream replicas")[2]
    kept = [line for line in shipped.splitlines() if "adapter-" not in line and "listen" not in line]
    assert [line for line in kept if line not in ours.splitlines()] == []
    assert "listen 127.0.0.1:4000;" in ours
