"""URLs of a Redis, and those that are none."""

from __future__ import annotations

import pytest

from adapter.state.redis.address import RedisAddress, RedisServer, RedisTls, parse_address

A, B = RedisServer("a", 6379), RedisServer("b", 7000)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://a", RedisAddress((A,))),
        ("redis://a:6379/", RedisAddress((A,))),
        ("redis://[::1]:7000/3", RedisAddress((RedisServer("::1", 7000),), database=3)),
        ("redis://[::1]", RedisAddress((RedisServer("::1", 6379),))),
        ("rediss://me@a", RedisAddress((A,), "me", tls=RedisTls())),
        ("redis://:p%40ss%2F%3A@a", RedisAddress((A,), None, "p@ss/:")),
        ("redis://me:p@ss@a", RedisAddress((A,), "me", "p@ss")),
        ("redis+cluster://me:x@a,b:7000", RedisAddress((A, B), "me", "x", cluster=True)),
        ("rediss://a?ssl_ca_certs=/ca.pem", RedisAddress((A,), tls=RedisTls("/ca.pem"))),
        ("rediss+cluster://a", RedisAddress((A,), tls=RedisTls(), cluster=True)),
        (
            "redis+sentinel://me:x@a,b:7000/main/2?sentinel_username=s&sentinel_password=%26y",
            RedisAddress(
                (RedisServer("a", 26379), B),
                "me",
                "x",
                2,
                service="main",
                sentinel_username="s",
                sentinel_password="&y",
            ),
        ),
        (
            "rediss+sentinel://a/main?ssl_certfile=%2Fown.pem",
            RedisAddress((RedisServer("a", 26379),), tls=RedisTls(None, "/own.pem"), service="main"),
        ),
    ],
)
def test_a_url_is_an_address(url: str, address: RedisAddress) -> None:
    """Servers, login, database, TLS and kind are read from the URL."""
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://u:s3cret@a", "must be a URL with redis://"),
        ("redis+unix://u:s3cret@a", "must be a URL with redis://"),
        ("s3cret", "must be a URL with redis://"),
        ("redis://u:s3cret@[a", "is not a valid URL"),
        ("redis://u:s3cret@", "must name each server"),
        ("redis://u:s3cret@a:x", "must name each server"),
        ("redis://u:s3cret@a:0", "must name each server"),
        ("redis://u:s3cret@a:65536", "must name each server"),
        ("redis://u:s3cret@a,b", "may name one server"),
        ("redis+cluster://u:s3cret@a,,b", "must name each server"),
        ("redis://u:s3cret@a/x", "must have the number of a database"),
        ("redis://u:s3cret@a/0/1", "may have only the number of a database"),
        ("redis://u@a?password=s3cret", "may only have ssl_ca_certs"),
        ("redis://u:s3cret@a?ssl_ca_certs=s3cret", "with rediss"),
        ("redis+sentinel://u:s3cret@a", "must have the name of the service"),
        ("redis+sentinel://u:s3cret@a/m/x", "must have the number of a database"),
        ("redis+sentinel://u:s3cret@a/m?s3cret=1", "may only have sentinel_username"),
    ],
)
def test_another_text_is_refused(url: str, sentence: str) -> None:
    """The sentence says what is wrong, and has nothing of the URL in it."""
    with pytest.raises(ValueError, match=sentence) as refused:
        parse_address(url)
    assert "s3cret" not in str(refused.value)


def test_a_password_does_not_show() -> None:
    """The text of an address is without passwords."""
    address = parse_address("redis+sentinel://me:s3cret@a/m?sentinel_password=s3cret")
    assert "s3cret" not in repr(address)
