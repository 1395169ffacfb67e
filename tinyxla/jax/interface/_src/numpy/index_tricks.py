"""`jax._src.numpy.index_tricks`: the classes of `jax.numpy.r_` and `c_`."""

from tinyxla.numpy.indexing.grids import c_ as _c, r_ as _r

_Rows = type(_r)


class RClass(_Rows):
    """Joins arrays and the numbers of slices along the first axis."""

    def __init__(self):
        vars(self).update(vars(_r))


class CClass(_Rows):
    """Joins arrays and the numbers of slices as columns."""

    def __init__(self):
        vars(self).update(vars(_c))
