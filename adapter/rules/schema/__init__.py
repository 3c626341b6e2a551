"""JSON Schema with bounds: any schema, any value, and an end to the work of reading one and judging the other.

``checker`` compiles a schema and tells what is wrong with a value. ``drafts`` knows what a schema looks
like, ``documents`` where its references lead, ``evaluation`` walks, ``assertions``, ``applicators`` and ``remainders``
are the keywords, ``wording`` is what is said of a mistake.

Why not a library: ``jsonschema`` follows a nested ``$schema`` or ``$ref: "#"`` into validators that nobody has bounded,
searches patterns of ``unevaluatedProperties`` with a backtracking engine, compares unique items in the square of their
number and keeps a ``repr`` of the value for each mistake of each alternative. ``jsonschema-rs`` is a hundred times as
fast and has no bound at all: a hostile schema occupies its caller, or ends the process by its stack. Here each step is
counted, and a message is made only of what is told. The official test suite says that the verdicts are right.
"""
