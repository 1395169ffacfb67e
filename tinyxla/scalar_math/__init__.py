"""Scalar math (`exp`, `sin`, `erf`, ...) as Python over a scalar with operators. Imports nothing else of tinyxla."""
