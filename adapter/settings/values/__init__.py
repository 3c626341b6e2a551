"""Kinds of values that fields hold: durations, sizes, and what all sections share."""
