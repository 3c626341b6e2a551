"""``servers[]``: upstreams, hosted tools, adapters of files, stages of tools, and policies that ``core`` has too."""
