"""Telling the listeners of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from adapter.state.port import StoreListener


def tell_all(listeners: Iterable[StoreListener], tell: Callable[[StoreListener], None]) -> None:
    """Tell each of the listeners, also where one of them fails: one fault must not make all of them deaf.

    The failure goes to the exception handler of the event loop.
    """
    for listener in list(listeners):
        try:
            tell(listener)
        except Exception as error:
            context = {"message": "a listener of the state store failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
