"""The way of each request: ``call/dispatch`` begins, ``stages`` names the slots of its road, the subfolders do the work."""
