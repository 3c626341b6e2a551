"""FastMCP's proxy in its own environment: ``fastmcp_proxy.py UPSTREAM_URL PORT fresh|shared``.

``fresh`` is the mode its documentation recommends: a backend session of its own for every request.
``shared`` gives all clients one connected client, which is cheaper and mixes their contexts.
"""

import asyncio
import sys

# It lives in an environment of its own, whose packages the project's checks do not see.
from fastmcp import Client  # type: ignore[import-not-found]  # see above
from fastmcp.server import create_proxy  # type: ignore[import-not-found]  # see above


async def serve(upstream: str, port: int, mode: str) -> None:
    options = {
        "transport": "http",
        "host": "127.0.0.1",
        "port": port,
        "path": "/mcp",
        "show_banner": False,
        "log_level": "warning",
        "uvicorn_config": {"access_log": False},
    }
    if mode == "fresh":
        await create_proxy(upstream).run_http_async(**options)
        return
    async with Client(upstream) as connected:
        await create_proxy(connected).run_http_async(**options)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
