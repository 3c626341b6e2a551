"""The way of each request: ``relay`` begins, ``stages`` names what a call walks, the subfolders do the work."""
