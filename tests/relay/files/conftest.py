"""Files of one process, as most tests begin with them."""

from __future__ import annotations

import pytest

from tests.relay.filing import Filing


@pytest.fixture
def filing() -> Filing:
    return Filing()
