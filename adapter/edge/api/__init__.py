"""The HTTP API of tools: its routes and answers over any provider, the adapter's servers as providers, a hook around
calls, and the same API inside another aiohttp application.
"""
