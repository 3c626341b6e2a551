"""Translations of single messages between the legacy era of MCP (through 2025-11-25) and the modern one."""
