"""The HTTP API of tools, its routes, and its parts inside another aiohttp application."""
