"""Values of element-wise operations on NumPy arrays, and how accurate they have to be."""
