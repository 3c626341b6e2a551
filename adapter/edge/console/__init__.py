"""The page to explore tools with, and the data it shows."""
