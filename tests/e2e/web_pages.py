"""Small web servers of a test, on a port of 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler


def any_of(path: str, handler: Handler) -> web.RouteDef:
    """The route for requests of every method."""
    return web.route("*", path, handler)


@asynccontextmanager
async def served(*routes: web.RouteDef, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Serve the routes until the block ends; the address before their paths."""
    app = web.Application(client_max_size=128 * 1024**2)
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def page_served(html: str) -> AsyncIterator[str]:
    """The address of a page."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    async with served(any_of("/{path:.*}", answer)) as base:
        yield f"{base}/"
