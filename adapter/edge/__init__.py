"""The side of clients: ``http`` is the server, ``mcp`` the endpoints, ``files`` uploads and downloads, ``api`` the HTTP
API of tools, ``console`` the page and its data. ``router`` sends each request to a mount or a branch, ``health``
reports the state of the adapter, and ``openapi`` describes the routes.
"""
