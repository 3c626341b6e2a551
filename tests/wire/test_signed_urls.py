"""Signed links: they prove what they were made for, until they expire, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.wire.signed_urls import (
    FilePath,
    UploadCredential,
    file_query,
    file_query_valid,
    parameters,
    read_upload_query,
    sign,
    signed,
    upload_query,
)

SECRET = b"a secret of thirty-two characters"
SCOPE, FILE = "0123456789abcdef" * 2, "fedcba9876543210" * 2
CREDENTIAL = UploadCredential("browser", SCOPE, 2_000, "n-0nce_4Zq")
OURS = ("browser", SCOPE, FILE)
NOW = 1_000.0

any_text = st.text(st.characters(exclude_categories=[]))  # lone surrogates too
part_lists = st.lists(any_text, max_size=4)
tokens = st.text("ABCXYZabcxyz019-_", min_size=1, max_size=40)
times = st.integers(0, 10**12 - 1)


@given(st.binary(max_size=80), any_text, part_lists)
def test_a_signature_holds_for_what_it_signed(secret: bytes, purpose: str, parts: list[str]) -> None:
    """It is 43 characters that need no escaping in a URL, and is recognized."""
    signature = sign(secret, purpose, *parts)
    assert len(signature) == 43
    assert set(signature) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert signed(secret, signature, purpose, *parts)


@given(part_lists, part_lists)
def test_other_parts_are_signed_otherwise(one: list[str], other: list[str]) -> None:
    """No two lists of parts share a signature."""
    assume(one != other)
    assert sign(SECRET, "p", *one) != sign(SECRET, "p", *other)


def test_where_a_part_ends_is_signed_too() -> None:
    """Letters moved from one part into the next, or a part cut in two, change the signature."""
    spellings = [
        ("p", "ab", "c"),
        ("p", "a", "bc"),
        ("p", "abc"),
        ("p", "abc", ""),
        ("pa", "bc"),
        ("", "pabc"),
    ]
    assert len({sign(SECRET, *parts) for parts in spellings}) == len(spellings)


def test_the_signature_is_the_same_in_every_version() -> None:
    """Replicas of two versions accept each other's links: the bytes that are signed are fixed."""
    assert sign(b"k", "p", "é") == "2-rbepsAlEwyCHx50T-yR8O5XNmCIylS341zvjxEEwU"


@given(any_text)
def test_any_other_text_is_no_signature(text: str) -> None:
    """Checking never raises, also for text that is not ASCII or no text at all."""
    assert not signed(SECRET, text, "p", "part")
    assert not signed(SECRET, sign(SECRET, "p", "part") + text + "=", "p", "part")


@given(tokens, tokens, times, tokens)
def test_an_upload_query_reads_back(server: str, scope: str, expires: int, nonce: str) -> None:
    """The credential that went into a URL comes out of it until the second it expires."""
    credential = UploadCredential(server, scope, expires, nonce)
    query = parameters(upload_query(SECRET, credential))
    assert read_upload_query(SECRET, server, query, expires - 0.01) == credential
    assert read_upload_query(SECRET, server, query, expires) is None


def test_a_link_for_a_person_is_another_one() -> None:
    """It cannot be made of the link for machines, which is good for less, nor the other way round."""
    person = CREDENTIAL._replace(page=True)
    query = parameters(upload_query(SECRET, person))
    assert read_upload_query(SECRET, "browser", query, NOW) == person
    machine = parameters(upload_query(SECRET, CREDENTIAL))
    assert query["sig"] != machine["sig"]
    assert read_upload_query(SECRET, "browser", machine | {"page": "1"}, NOW) == CREDENTIAL


def test_what_an_upload_query_looks_like() -> None:
    """The order and the names of the parameters are a promise to those who read them."""
    names = [part.partition("=")[0] for part in upload_query(SECRET, CREDENTIAL).split("&")]
    assert names == ["sid", "exp", "nonce", "sig"]
    assert upload_query(SECRET, CREDENTIAL).startswith(f"sid={SCOPE}&exp=2000&nonce=n-0nce_4Zq&sig=")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sid", value) for value in ("", FILE, SCOPE.upper(), SCOPE + " ", "\ud800")),
        *(
            ("exp", value)
            for value in ("", "2001", "02000", "+2000", "2000.0", " 2000", "2_000", "2e3", "-1")
        ),
        *(("exp", value) for value in ("\N{ARABIC-INDIC DIGIT TWO}000", "9" * 5_000, "\ud800", "x")),
        *(("nonce", value) for value in ("", "other", "é")),
        *(("sig", value) for value in ("", "A" * 43, "é", "\ud800", "\0")),
    ],
)
def test_a_changed_parameter_voids_the_credential(name: str, value: str) -> None:
    """Nothing in an upload URL can be changed, nor the same moment written in another way."""
    query = parameters(upload_query(SECRET, CREDENTIAL)) | {name: value}
    assert read_upload_query(SECRET, "browser", query, NOW) is None


@pytest.mark.parametrize("name", ["sid", "exp", "nonce", "sig"])
def test_a_missing_or_repeated_parameter_voids_the_credential(name: str) -> None:
    """Each parameter stands there once."""
    text = upload_query(SECRET, CREDENTIAL)
    query = parameters(text)
    repeated = parameters(f"{text}&{name}={query[name]}")
    assert name not in repeated
    assert read_upload_query(SECRET, "browser", repeated, NOW) is None


def test_a_credential_is_for_one_server_and_one_secret() -> None:
    """An upload URL of one server, or of another adapter, is nothing at this one."""
    query = parameters(upload_query(SECRET, CREDENTIAL))
    assert read_upload_query(SECRET, "browser", query, NOW) == CREDENTIAL
    assert read_upload_query(SECRET, "other", query, NOW) is None
    assert read_upload_query(b"another", "browser", query, NOW) is None


def test_other_parameters_do_not_matter() -> None:
    """A URL may carry more than what is signed."""
    query = parameters(upload_query(SECRET, CREDENTIAL) + "&utm=1&utm=2")
    assert read_upload_query(SECRET, "browser", query, NOW) == CREDENTIAL


@given(st.dictionaries(st.sampled_from(["sid", "exp", "nonce", "sig"]), any_text))
def test_no_upload_query_makes_reading_fail(query: dict[str, str]) -> None:
    """Whatever the parameters hold, they are a credential or nothing."""
    assert read_upload_query(SECRET, "browser", query, NOW) is None


@given(tokens, tokens, tokens, times, st.sampled_from(["download", "delivery"]))
def test_a_file_link_holds_until_it_expires(
    server: str, scope: str, file_id: str, expires: int, purpose: str
) -> None:
    """A link to a file is good for that file until the second it expires."""
    text = file_query(SECRET, purpose, (server, scope, file_id), expires)
    assert text.startswith(f"exp={expires}&sig=")
    query = parameters(text)
    assert file_query_valid(SECRET, purpose, (server, scope, file_id), query, expires - 0.01)
    assert not file_query_valid(SECRET, purpose, (server, scope, file_id), query, expires)


@pytest.mark.parametrize(
    "elsewhere",
    [
        ("delivery", OURS),
        ("upload", OURS),
        ("download", ("other", SCOPE, FILE)),
        ("download", ("browser", FILE, FILE)),
        ("download", ("browser", SCOPE, SCOPE)),
    ],
)
def test_a_file_link_is_for_one_file_and_one_purpose(elsewhere: tuple[str, FilePath]) -> None:
    """It opens no other file, scope or server, and a download's link delivers nothing to a tool."""
    query = parameters(file_query(SECRET, "download", OURS, 2_000))
    assert file_query_valid(SECRET, "download", OURS, query, NOW)
    assert not file_query_valid(SECRET, *elsewhere, query, NOW)
    assert not file_query_valid(b"another", "download", OURS, query, NOW)


def test_a_file_link_is_no_right_to_upload() -> None:
    """The signature of a download, read as an upload's, is refused even with parts that fit."""
    signature = sign(SECRET, "download", "browser", SCOPE, "2000", FILE)
    query = {"sid": SCOPE, "exp": "2000", "nonce": FILE, "sig": signature}
    assert read_upload_query(SECRET, "browser", query, NOW) is None


@given(st.dictionaries(st.sampled_from(["exp", "sig"]), any_text))
def test_no_file_query_makes_checking_fail(query: dict[str, str]) -> None:
    """Whatever the parameters hold, they are valid or not; made-up ones are not."""
    assert not file_query_valid(SECRET, "download", OURS, query, NOW)


@given(any_text)
def test_no_query_makes_splitting_fail(query: str) -> None:
    """Any text at all can stand behind the question mark."""
    parameters(query)


def test_how_a_query_is_split() -> None:
    """Escapes are read, blanks are kept, what is no UTF-8 stays distinct and what repeats is left out."""
    assert parameters("") == {}
    assert parameters("a=%C3%A9&b=&c&d=x+y") == {"a": "é", "b": "", "c": "", "d": "x y"}
    assert parameters("a=%ff&b=%fe") == {"a": "\udcff", "b": "\udcfe"}
    assert parameters("a=1&b=2&a=1") == {"b": "2"}
