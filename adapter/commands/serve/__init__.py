"""``mcp-adapter serve``: one process or a supervisor with workers, and starts that are repeated until one succeeds."""
