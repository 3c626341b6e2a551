"""``-m tests.e2e.clients.open_browser PERSON URL``: the browser of a person, for programs that open URLs in one."""

from __future__ import annotations

import sys

from tests.e2e.clients.browser import Browser

if __name__ == "__main__":
    person, url = sys.argv[1:3]
    Browser(person).visit(url)
