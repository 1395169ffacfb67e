"""Indexing: what an index says, elements that are picked by it, and updated copies."""
