"""Functions and arrays over many devices."""
