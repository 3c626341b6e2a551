"""The public names for scripts of hosted tools: answers, failures and progress.

Also the names for aiohttp applications that embed the adapter, or the tool API for their own tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from adapter.pipeline.call import AuthRequest, Context
from adapter.rules.presenters import ui
from adapter.rules.results.outcomes import (
    ToolUserError,
    error,
    progress,
    required,
    response,
    success,
    tool_error,
)

if TYPE_CHECKING:
    from typing import Unpack

    from adapter.app.run import Source
    from adapter.edge.api.embedding import Application, HandleCall, Mount, Options, RouteDef, Tools

__all__ = (
    "AuthRequest",
    "Context",
    "ToolUserError",
    "build_ui_routes",
    "create_app",
    "create_mount",
    "error",
    "progress",
    "required",
    "response",
    "success",
    "tool_error",
    "ui",
)

# What follows imports when it is called: a script in a process of its own would wait for a web server otherwise.


def build_ui_routes(*, tools: Tools, handle_call: HandleCall, **options: Unpack[Options]) -> list[RouteDef]:
    """The page and the HTTP API of these tools, for ``Application.add_routes``: ``/``, ``/tools``, ``/tools/{name}``,
    ``/tools/{name}/call`` and ``/tools/{name}/validate``.

    ``tools`` is a list, or a function, sync or async, that gives one and is asked for each request. ``handle_call`` is
    awaited with a tool's name, its arguments and, if it takes three parameters, the request; it returns content,
    is_error and a trace id. Nothing is run unless ``allow_execute`` is given.
    """
    from adapter.app.run import explorer

    return explorer(tools, handle_call, options)[0]


def create_mount(
    prefix: str = "/explorer", *, tools: Tools, handle_call: HandleCall, **options: Unpack[Options]
) -> Mount:
    """The same as an application below ``prefix``, for ``app.add_subapp(*create_mount(…))``."""
    from adapter.app.run import explorer
    from adapter.edge.api.embedding import mount

    return mount(prefix, *explorer(tools, handle_call, options))


@overload
def create_app(settings: Source) -> Application: ...


@overload
def create_app(
    settings: None = None, *, tools: Tools, handle_call: HandleCall, **options: Unpack[Options]
) -> Application: ...


def create_app(
    settings: Source | None = None,
    *,
    tools: Tools | None = None,
    handle_call: HandleCall | None = None,
    **options: Unpack[Options],
) -> Application:
    """Build an application: the whole adapter with these settings, or the page and the API of a host's own tools.

    The adapter starts and stops with the application. Run it at the root of its host or set ``core.public_base_url``,
    so that its URLs are right. Raises SettingsError, and TypeError unless exactly one of the two is given.
    """
    from adapter.edge.api.embedding import application

    if settings is not None and tools is None and handle_call is None and not options:
        from adapter.app.run import embedded, embedded_lifetime

        app = embedded(settings)
        return application(app.front, lambda: embedded_lifetime(app), app.bodies)
    if settings is not None or tools is None or handle_call is None:
        raise TypeError("create_app takes settings, or else tools and handle_call.")
    return create_mount("/", tools=tools, handle_call=handle_call, **options).app
