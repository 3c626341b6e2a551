"""Contradictions between ``telemetry.prometheus`` and other settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from adapter.settings.root import Settings
from adapter.settings.section import Problem


def metrics_problems(settings: Settings, own_routes: Iterable[str]) -> Iterator[Problem]:
    """Find a path or port of the metrics that is taken, and metrics that nobody may read.

    ``own_routes`` are the paths of the adapter itself.
    """
    prometheus, core = settings.telemetry.prometheus, settings.core
    if not prometheus.enabled:
        return
    if prometheus.place is not None:
        if prometheus.port == core.port and core.host in (prometheus.place[0], "0.0.0.0", "::"):  # noqa: S104 (compared)
            yield Problem("telemetry.prometheus.port", "is already core.port: remove it, or choose another")
        return
    if core.exposure is not None and not core.auth.enabled:
        sentence = (
            f"is not allowed, because {core.exposure} and core.auth is not enabled: enable core.auth, or set "
            "telemetry.prometheus.port"
        )
        yield Problem("telemetry.prometheus.enabled", sentence)
    taken = dict.fromkeys(own_routes, "a route of the adapter itself")
    taken[core.upload_path] = "core.upload_path"
    if settings.console.enabled:
        taken[settings.console.path] = "console.path"
    for path, owner in taken.items():
        if _below_one_another(prometheus.path, path):
            yield Problem("telemetry.prometheus.path", f"{prometheus.path} is not free: {path} is {owner}")
    for server in settings.servers:
        if server.mount_path == prometheus.path:
            sentence = f"{prometheus.path} is not free: it is the mount_path of {server.id}"
            yield Problem("telemetry.prometheus.path", sentence)


def _below_one_another(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
