"""The pages on which a person gives a grant: ``routes`` serves them, ``pages`` writes them."""
