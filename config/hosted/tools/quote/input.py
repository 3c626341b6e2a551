"""What becomes of quote's arguments before they are checked."""


def plain(payload):
    """People write prices with a currency: ``€ 12.50`` is 12.50."""
    inputs = payload["inputs"]
    if isinstance(price := inputs.get("price"), str):
        return {**inputs, "price": price.strip("€$ ")}
    return inputs
