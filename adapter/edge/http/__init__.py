"""HTTP/1.1 as clients speak it: connections, parsing, requests, responses, their limits, and access by Host, Origin
and token.
"""
