"""The file of settings as it is read: YAML, placeholders, folders of tools."""
