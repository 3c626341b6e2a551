"""One call on its way: gate, pass-through or stages, the answer as a stream, and answers that come later."""
