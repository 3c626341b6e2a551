"""Uploads by forms and downloads by links, and the ownership of files."""
