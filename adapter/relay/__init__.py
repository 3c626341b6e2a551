"""The way of each request: ``call/dispatch`` begins, ``stages`` names the slots of its road, the wings do the work."""
