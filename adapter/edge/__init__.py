"""The side of clients: ``http`` is the server, ``mcp`` the endpoints, ``files`` uploads and downloads, ``api`` the HTTP
API of tools, ``console`` the page, its data and the description of the routes. ``router`` sends each request to a mount
or a branch, ``health`` reports the state of the adapter, and ``public_documents`` need no credentials.
"""
