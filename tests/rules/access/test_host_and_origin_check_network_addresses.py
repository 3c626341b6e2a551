"""Addresses that lead to this machine or into a private network, in every spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.host_and_origin_check import host_spellings, is_inner_host, network_kind


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("10.1.2.3", "private"),
        ("192.168.0.1", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("ff02::1", "private"),
        ("224.0.0.1", "private"),
        ("255.255.255.255", "private"),
        ("100.64.0.1", "private"),
        ("169.254.169.254", "local"),
        ("fe80::1%eth0", "local"),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::1%1", "loopback"),
        ("::", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "local"),
        ("::127.0.0.1", "loopback"),
        ("::10.0.0.1", "private"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::169.254.169.254", "local"),
        ("64:ff9b::8.8.8.8", "public"),
        ("64:ff9b:1::7f00:1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("2002:0a00:1::1", "private"),
        ("2002:0808:0808::1", "public"),
        ("2001:0:808:808:0:0:80ff:fffe", "loopback"),
        ("2001:0:a00:1:0:0:f7f7:f7f7", "private"),
    ],
)
def test_kinds_of_networks(address: str, kind: str) -> None:
    """Also of an address of IPv4 within one of IPv6: mapped, compatible, translated, or at the end of a tunnel."""
    assert network_kind(address) == kind


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.1",
            "2130706433",
            "0",
            "0x7f.1",
            "0X7F000001",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "10.1",
        ),
        *(
            "127.0.0.1.",
            "10.0.0.1..",
            "::1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "fe80::1%25eth0",
            "169.254.169.254",
            "2002:7f00:1::",
            "0x",
            "a.127.1",
        ),
    ],
)
def test_numbers_are_addresses(host: str) -> None:
    """Systems and browsers read one to four numbers as an address, and a host that ends in one leads nowhere else."""
    assert is_inner_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "8.8.8.8",
        "2606:4700::1111",
        "login.example",
        "login.example.",
        "4chan.example",
        "3com",
        "0xyz",
        "a1",
        "",
    ],
)
def test_others_are_not(host: str) -> None:
    """Public addresses, and names, which are judged when they are looked up."""
    assert not is_inner_host(host)


@given(st.text())
def test_no_host_breaks_the_check(host: str) -> None:
    """Any text is judged; none raises."""
    is_inner_host(host)


def test_a_host_is_named_with_its_port_or_for_all_ports() -> None:
    """An address of IPv6 also in the brackets that it has in a URL, and with a port in these only."""
    assert host_spellings("files.test", 443) == {"files.test", "files.test:443"}
    assert host_spellings("::1", 8443) == {"::1", "[::1]", "[::1]:8443"}
