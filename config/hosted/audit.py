"""Functions that the settings file names: one makes the context of a call, the other stands around every call."""

import sys
import time


def context(request):
    """Members that join the context of a call, which handlers, middleware and presenters are given."""
    return {"caller": request.principal or "somebody", "since": time.monotonic()}


async def audit(context, arguments, call_next):
    """A function of three is around the call: what it returns is the result. This one leaves a line beside the log."""
    result = await call_next()
    spent = f"{time.monotonic() - context.since:.3f} s"
    print(context.caller, context.request.tool, ", ".join(arguments), spent, sep="\t", file=sys.stderr)
    return result
