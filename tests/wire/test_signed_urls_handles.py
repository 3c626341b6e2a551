"""Handles: what was made reads back, and nothing that only resembles a handle is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.signed_urls import Handle, artifact_uri, parse_artifact, parse_upload, upload_handle

SCOPE, FILE = "0123456789abcdef" * 2, "fedcba9876543210" * 2
UPLOAD = f"upload://sessions/{SCOPE}/{FILE}"
ARTIFACT = f"artifact://sessions/{SCOPE}/{FILE}/shot.png"

hex_ids = st.text("0123456789abcdef", min_size=32, max_size=32)
any_text = st.text(st.characters(exclude_categories=[]))  # lone surrogates too
file_names = any_text.filter(bool)
schemes = st.sampled_from(["upload://", "artifact://", "x+y://", "files.of-ours://"])


@given(hex_ids, hex_ids, schemes)
def test_an_upload_handle_reads_back(scope: str, file_id: str, scheme: str) -> None:
    """Scope and id come back out of a handle as they went in."""
    assert parse_upload(upload_handle(scope, file_id, scheme), scheme) == Handle(scope, file_id, None)


@given(hex_ids, hex_ids, file_names, schemes)
def test_an_artifact_uri_reads_back(scope: str, file_id: str, name: str, scheme: str) -> None:
    """Any file name comes back, lone surrogates and slashes too, and the URI itself is plain ASCII."""
    uri = artifact_uri(scope, file_id, name, scheme)
    assert uri.isascii()
    assert uri.count("/") == scheme.count("/") + 3
    assert parse_artifact(uri, scheme) == Handle(scope, file_id, name)


def test_what_handles_look_like() -> None:
    """The spelling is a promise: clients and scripts keep it."""
    assert upload_handle(SCOPE, FILE) == UPLOAD
    assert artifact_uri(SCOPE, FILE, "shot.png") == ARTIFACT
    assert artifact_uri(SCOPE, FILE, "名 a/b?.txt").endswith("/%E5%90%8D%20a%2Fb%3F.txt")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_is_no_step_upwards(name: str) -> None:
    """A file called ``..`` has a URI without that segment, and a bare ``..`` is no artifact."""
    uri = artifact_uri(SCOPE, FILE, name)
    assert "/." not in uri
    assert parse_artifact(uri, "artifact://") == Handle(SCOPE, FILE, name)
    assert parse_artifact(f"artifact://sessions/{SCOPE}/{FILE}/{name}", "artifact://") is None


BEHIND = [
    *("/", "/../../x", "/x", "?x=1", "?", "#f", " ", "\n", "\r\n", "\t", "\0", "\u2028", "\ufeff", "\u3000"),
    *("0", ";a", "%2f..", "\ud800", "\\..", ","),
]
OUTSIDE_A_NAME = [
    *("/", "/../../x", "/x", "?x=1", "#f", " ", "\n", "\0", "\u3000", "\\", "é", "\ud800", "%", "%2", "%zz"),
    *("%ff", "%c3"),
]


def test_nothing_may_stand_behind_a_handle() -> None:
    """A handle with anything behind it is no handle, nor is one with anything before it; nor may an artifact's name
    hold what a URI's segment cannot, or escapes that are no text."""
    for text in BEHIND:
        assert parse_upload(UPLOAD + text, "upload://") is None, text
        assert parse_upload(text + UPLOAD, "upload://") is None, text
    for text in OUTSIDE_A_NAME:
        assert parse_artifact(ARTIFACT + text, "artifact://") is None, text


@pytest.mark.parametrize(
    "text",
    [
        *("", "upload://", "sessions", "upload://sessions", "/tmp/x", "\ud800"),
        f"upload://sessions/{SCOPE.upper()}/{FILE}",
        f"upload://sessions/{SCOPE}/{FILE.upper()}",
        f"UPLOAD://sessions/{SCOPE}/{FILE}",
        f"upload://Sessions/{SCOPE}/{FILE}",
        f"upload:///sessions/{SCOPE}/{FILE}",
        f"upload://host/sessions/{SCOPE}/{FILE}",
        f"upload://sessions//{SCOPE}/{FILE}",
        f"upload://sessions/{SCOPE[:-1]}/{FILE}",
        f"upload://sessions/{SCOPE[:-1]}/0{FILE}",
        f"upload://sessions/{SCOPE}/{FILE[:-1]}",
        f"upload://sessions/{SCOPE}/{FILE[:-1]}\N{ARABIC-INDIC DIGIT ONE}",
        f"upload://sessions/{SCOPE}/../{FILE}",
        f"upload:// sessions/{SCOPE}/{FILE}",
        f"artifact://sessions/{SCOPE}/{FILE}",
        f"artifact://sessions/{SCOPE}/{FILE}/",
        UPLOAD + UPLOAD,
    ],
)
def test_what_resembles_a_handle_is_none(text: str) -> None:
    """Another case, another length, another scheme: none of them is an upload's handle, or an artifact's, which
    has a name."""
    assert parse_upload(text, "upload://") is None
    assert parse_artifact(text, "artifact://") is None


def test_escapes_may_be_written_in_either_case() -> None:
    """A client that rewrites the escapes of a URI still names the same file."""
    lower = f"artifact://sessions/{SCOPE}/{FILE}/%e5%90%8D(1)+a.txt"
    assert parse_artifact(lower, "artifact://") == Handle(SCOPE, FILE, "名(1)+a.txt")


@given(any_text, st.sampled_from([UPLOAD, ARTIFACT]), st.integers(0, 90))
def test_no_text_makes_parsing_fail(text: str, handle: str, at: int) -> None:
    """Whatever is put into a handle, the answer is a handle or None; an upload's is that very text."""
    mixed = handle[:at] + text + handle[at:]
    parse_artifact(mixed, "artifact://")
    found = parse_upload(mixed, "upload://")
    assert found is None or upload_handle(found.scope, found.id) == mixed
