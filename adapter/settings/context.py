"""``context``: what functions of the user's are given beside a call."""

from __future__ import annotations

from pydantic import Field

from adapter.settings.values.section import CodeReference, Section


class ContextSettings(Section):
    """What handlers, middleware and presenters are given beside a call."""

    factory: CodeReference = Field(
        default=None, description="Function from the request to a mapping, whose members join the context."
    )
