"""The parts that hold callers to rules and put on record what they did, built where they are configured."""
