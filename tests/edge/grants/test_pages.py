"""The pages of grants: nothing that comes from elsewhere is more than text in them."""

from __future__ import annotations

from adapter.edge.grants.pages import consent_page, failed_page, granted_page, leaving_page

EVIL = '"><script>alert(1)</script>\u202e'


def test_texts_of_strangers_are_text() -> None:
    """Names, hosts, scopes and URLs can break out of no element and no attribute, and turn no line around."""
    pages = (
        consent_page(EVIL, EVIL, EVIL, [EVIL], EVIL, asks_token=True),
        granted_page(EVIL, EVIL),
        failed_page(EVIL),
        leaving_page(f"https://login.example/?x={EVIL}", EVIL),
    )
    for page in pages:
        text = page.decode()
        assert "<script" not in text
        assert EVIL not in text
        assert "&lt;script&gt;" in text


def test_long_texts_are_shortened() -> None:
    """A page stays a page, however long a name is, and however many scopes there are."""
    page = consent_page("a" * 9999, "b" * 9999, "c" * 9999, ["d" * 9999] * 999, "e", asks_token=False)
    assert len(page) < 20_000
    assert b"949 more" in page
    assert b"password" not in page


def test_a_grant_that_is_everybody_s() -> None:
    """Where callers are not told apart the page says that all of them will use the account."""
    page = consent_page("notes", None, "login.example", [], "e", asks_token=False).decode()
    assert "everybody who can use this adapter" in page
    assert "those it gives by itself" in page
    assert "everybody" in granted_page("notes", None).decode()
