"""Functions that the settings file names: one makes the context of a call, the other stands around every call."""

import logging
import time

log = logging.getLogger("shop.audit")


def context(request):
    """Members that join the context of a call, which handlers, middleware and presenters are given."""
    return {"caller": request.principal or "somebody", "since": time.monotonic()}


async def audit(context, arguments, call_next):
    """A function of three is around the call: what it returns is the result."""
    result = await call_next()
    spent = time.monotonic() - context.since
    log.info("%s: %s(%s) took %.3f s", context.caller, context.request.tool, ", ".join(arguments), spent)
    return result
