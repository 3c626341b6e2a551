"""The folder of the numbers of workers."""

from __future__ import annotations

from adapter.workers.fleet import BEGAN, MetricFiles


def test_what_a_worker_counted_outlives_it_and_its_gauges_do_not() -> None:
    """Until the supervisor ends, which leaves nothing behind."""
    files = MetricFiles()
    assert files.folder.stat().st_mode & 0o777 == 0o700
    names = ("counter_1.db", "gauge_livesum_1.db", "gauge_livemax_1.db", "gauge_livemax_2.db")
    for name in names:
        (files.folder / name).touch()
    files.left(1)
    assert {each.name for each in files.folder.iterdir()} == {BEGAN, "counter_1.db", "gauge_livemax_2.db"}
    files.close()
    files.close()
    assert not files.folder.exists()
