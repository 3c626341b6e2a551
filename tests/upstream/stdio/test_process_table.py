"""Questions about processes get true answers, in every way in which they can be asked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from adapter.upstream.stdio.process_table import (
    child_ids,
    group_exists,
    group_of,
    parent_of,
    process_ids,
    send_signal,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def test_a_child_is_known_until_it_is_reaped() -> None:
    """It is in the list, its parent and its group are known; afterwards there is nothing."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        pid = process.pid
        assert pid in child_ids()
        assert pid in [each for each in process_ids() if parent_of(each) == os.getpid()]
        assert (group_of(pid), group_exists(pid)) == (pid, True)
        send_signal(-pid, 15)
        assert process.wait() == -15
    assert pid not in child_ids()
    assert (parent_of(pid), group_of(pid), group_exists(pid)) == (0, 0, False)
    send_signal(pid, 0)
