"""Authentication of tool calls: API keys, JSON Web Tokens and the keys that verify them."""
