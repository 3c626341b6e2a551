"""Checks of what has to fit together around tool stages: presenters, the places that name them, and console routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from adapter.settings.checks.hosted_tools import NOTHING_KEPT
from adapter.settings.core import is_loopback
from adapter.settings.presenters import PresenterSettings
from adapter.settings.problems import Problem
from adapter.settings.root import Settings


def pipeline_problems(settings: Settings) -> Iterator[Problem]:
    """Names that lead nowhere or in circles, and a console that nobody could use."""
    yield from _embeds(settings.presenters)
    for index, server in enumerate(settings.servers):
        for glob, stages in server.stages.items():
            if stages.cache.idle(server.tools.cache.enabled):
                yield Problem(f"servers[{index}].stages.{glob}.cache", NOTHING_KEPT)
            if stages.presenter is not None and stages.presenter not in settings.presenters:
                sentence = f"there is no presenter of the name {stages.presenter}"
                yield Problem(f"servers[{index}].stages.{glob}.presenter", sentence)
    yield from _console(settings)


def _embeds(presenters: Mapping[str, PresenterSettings]) -> Iterator[Problem]:
    for name, presenter in presenters.items():
        for member, embedded in presenter.embed.items():
            place = f"presenters.{name}.embed.{member}"
            if embedded not in presenters:
                yield Problem(place, f"there is no presenter of the name {embedded}")
            elif name in _within(embedded, presenters):
                yield Problem(place, f"{embedded} embeds {name} in turn, so its data would never end")


def _within(name: str, presenters: Mapping[str, PresenterSettings]) -> set[str]:
    """The presenter and all that it embeds, directly and further in."""
    found: set[str] = set()
    open_ends = [name]
    while open_ends:
        embedded = open_ends.pop()
        if embedded in presenters and embedded not in found:
            found.add(embedded)
            open_ends.extend(presenters[embedded].embed.values())
    return found


def _console(settings: Settings) -> Iterator[Problem]:
    console, auth = settings.console, settings.core.auth
    names = {token.name for token in auth.tokens}
    for index, operator in enumerate(console.operators):
        if operator not in names:
            sentence = f"no entry of core.auth.tokens has the name {operator}"
            yield Problem(f"console.operators[{index}]", sentence)
    if console.enabled and not auth.enabled and not is_loopback(settings.core.host):
        sentence = "is open to the network, as core.host is no loopback address: enable core.auth, or bind to 127.0.0.1"
        yield Problem("console.enabled", sentence)
    if console.discovery_auth and not auth.enabled:
        yield Problem(
            "console.discovery_auth", "demands a token, but core.auth is not enabled: nobody has one"
        )
