"""JSON Schema with bounds: ``checker`` compiles a schema and judges values by it, ``cost`` bounds the work beforehand,
``results.refusals`` has the words for a mistake.

The judge is ``jsonschema-rs``: it fetches nothing here, and its expressions take a time that is linear in the text. It
has no bound of its own, so a hostile schema could hold whoever asks: what may take long is refused with OutOfSteps
before it begins, and is judged where it can be ended, in a process of its own.
"""
