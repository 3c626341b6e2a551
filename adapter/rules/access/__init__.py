"""Who may come in, and what of a request and an answer may pass: hosts, principals, headers, rates, sessions. Pure."""
