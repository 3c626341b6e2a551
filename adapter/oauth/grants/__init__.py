"""Grants of people for upstreams (``servers[].upstream.auth.type: authorization_code``): asked for, kept, renewed.

``flow`` takes a person from the link to the grant, ``grant_store`` keeps grants sealed, ``credentials`` gives them to
requests and renews them.
"""
