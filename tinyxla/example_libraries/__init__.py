"""What JAX has under this name: `stax`, layers as pairs of functions, and `optimizers`."""

from tinyxla.example_libraries import optimizers as optimizers, stax as stax
