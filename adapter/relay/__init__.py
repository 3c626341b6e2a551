"""What becomes of each request: ``relay`` begins, ``stages`` names what a call walks, the wings do the work."""
