"""``-m tests.e2e.oauth.protected_server PORT ISSUER AUDIENCE PUBLIC``: FastMCP that takes the tokens of an issuer.

It is run with a Python that has FastMCP. Its tools, its resource and its prompt tell whose token came with the request.
AUDIENCE ``-`` takes tokens for every audience. PUBLIC is the address above ``/mcp`` that its metadata and challenges
name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import count
from typing import Any

from tests.e2e.serving import serve

# By name: the project's own environment, which the type checker sees, does not hold it.
fastmcp: Any = import_module("fastmcp")
auth: Any = import_module("fastmcp.server.auth")
jwt: Any = import_module("fastmcp.server.auth.providers.jwt")
dependencies: Any = import_module("fastmcp.server.dependencies")


def built(issuer: str, audience: str, public: str) -> Any:
    """The server, protected for the scope ``mcp``."""
    verifier = jwt.JWTVerifier(
        jwks_uri=f"{issuer}/jwks",
        issuer=issuer,
        audience=None if audience == "-" else audience,
        required_scopes=["mcp"],
    )
    protection = auth.RemoteAuthProvider(
        token_verifier=verifier, authorization_servers=[issuer], base_url=public
    )
    server = fastmcp.FastMCP("protected", auth=protection)
    server.tool(whoami)
    server.tool(echo)
    server.tool(ticket, annotations={"readOnlyHint": True})
    server.resource("note://whoami")(whoami)
    server.prompt(whoami)
    return server


def whoami() -> str:
    """Name the subject of the token that the request brought."""
    return str(dependencies.get_access_token().claims["sub"])


def echo(text: str) -> str:
    """Give back what it was given."""
    return f"you said {text}"


numbers = count(1)


def ticket(place: str) -> str:
    """Name the subject of the token, and a number that no other answer has."""
    return f"{whoami()} {place} {next(numbers)}"


if __name__ == "__main__":
    serve(lambda: built(*sys.argv[2:5]).http_app())
