"""`jax._src.numpy.array_methods`: base classes of what `x.at` and `x.at[index]` are of arrays of a program's own."""


class _IndexUpdateHelper:
    """What `x.at` is: it takes an index in brackets."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index):
        return _IndexUpdateRef(self.array, index)

    def __repr__(self):
        return f"_IndexUpdateHelper({self.array})"


class _IndexUpdateRef:
    """What `x.at[index]` is: the methods read or update the elements of the array."""

    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __repr__(self):
        return f"_IndexUpdateRef({self.array}, {self.index!r})"


def _of_array(name):
    def method(self, *args, **options):
        return getattr(self.array.at[self.index], name)(*args, **options)

    method.__name__ = name
    return method


for _name in "get set add subtract sub multiply mul divide div power pow min max apply".split():
    setattr(_IndexUpdateRef, _name, _of_array(_name))
