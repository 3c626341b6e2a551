"""Files of sessions: uploads that calls consume, artifacts that calls produce, their registry and links."""
