"""Reading the settings file: YAML, placeholders, folders of tools."""
