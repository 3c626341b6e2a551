"""The tool quote; the only public function of the file is the one that is called."""

from adapter.api import ToolUserError


def quote(payload):
    """Takes ``{"inputs": …, "tool": name}``; what it returns is the result."""
    count = payload["inputs"]["count"]
    if count < 1:
        raise ToolUserError("At least one has to be bought.")
    return {"total": count * payload["inputs"]["price"]}
