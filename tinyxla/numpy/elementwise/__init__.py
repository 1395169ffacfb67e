"""Element-wise functions and ufuncs."""
