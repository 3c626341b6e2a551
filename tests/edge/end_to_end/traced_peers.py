"""``python -m tests.edge.end_to_end.traced_peers COLLECTOR``: a server and clients of the SDK, which record spans.

It prints the URL of its server. Each line of its input is the URL of an adapter: a client calls a tool there, and the
word "called" is printed when all spans have been exported.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.waiting import until

server = MCPServer("traced")


@server.tool()
def greet(name: str) -> str:
    """Greets by name."""
    return f"Hello {name}"


async def main(collector: str) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "peers"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    trace.set_tracer_provider(provider)
    config = uvicorn.Config(server.streamable_http_app(), port=0, log_level="warning")
    running = uvicorn.Server(config)
    task = asyncio.create_task(running.serve())
    await until(lambda: running.started)
    print(f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}/mcp", flush=True)
    while url := (await asyncio.to_thread(sys.stdin.readline)).strip():
        async with Client(streamable_http_client(url), mode="legacy") as client:
            with trace.get_tracer("agent").start_as_current_span("agent"):
                await client.call_tool("greet", {"name": "ada"})
        print("called", flush=True)
    running.should_exit = True
    await task


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
