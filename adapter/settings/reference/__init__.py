"""The reference page written from the models, and settings as they may be shown."""
