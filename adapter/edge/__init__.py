"""The parts that clients meet: HTTP, the MCP endpoints, files, the HTTP API, the console and health."""
