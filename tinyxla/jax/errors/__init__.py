"""Words of errors: what JAX says where this library has errors of its own words, and what tracebacks leave out."""
