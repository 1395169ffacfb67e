"""Kernels of users: functions that Numba compiles, as operations.

A kernel is a `custom-call` whose target is made for the shapes it is called with. Compiled programs call its machine
code as they call their own loops; without the compiler its Numba function is called on NumPy arrays.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinyxla.api.functions import ShapeDtypeStruct, arrays_of, check_callable
from tinyxla.custom_batching import custom_vmap
from tinyxla.custom_derivatives import custom_jvp, custom_vjp
from tinyxla.errors import ArgumentError, DifferentiationError, ShapeError
from tinyxla.lax.loops.control_flow import map_
from tinyxla.ops import movement
from tinyxla.ops.host import custom_call
from tinyxla.ops.host.custom_call import CustomCall, Target
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.cache_keys import exact
from tinyxla.util.wrapping import wraps

__all__ = ["Kernel", "kernel"]

_BATCHING = ("sequential", "broadcast")
_numbers = itertools.count()


class Kernel:
    """A function that Numba compiles, as a function of arrays; made by `kernel`.

    >>> import numpy as np
    >>> import tinyxla
    >>> @tinyxla.kernel
    ... def cumulative_max(x, out):
    ...     largest = -np.inf
    ...     for i in range(x.size):
    ...         largest = max(largest, x[i])
    ...         out[i] = largest
    >>> cumulative_max(np.float32([1, 3, 2]))
    Array([1., 3., 3.], dtype=float32)
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], out: Callable[..., Any], vmap: str) -> None:
        self.function = function  # as it was given
        self._out = out
        self._vmap = vmap
        self._compiled: Any = None
        self._targets: dict[Any, str] = {}
        self._rules: dict[str, tuple[Callable[..., Any], ...]] = {}  # by the method that sets them
        self._calls: dict[Any, Callable[..., Any]] = {}  # with the rules, by static values
        wraps(getattr(function, "py_func", function))(self)

    def __call__(self, *args: Any, **static: Any) -> Any:
        if not self._rules:
            return self._apply(*args, **static)
        key = self._static_key(static)
        if key not in self._calls:
            self._calls[key] = self._with_rules(static)
        return self._calls[key](*args)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    # --- rules

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Set the derivative in forward mode: `jvp(primals, tangents, **static)` gives the results and their tangents,
        as for `custom_jvp`; it must be linear in the tangents, which backward mode transposes. `static` are the static
        values of the call.

        Args:
            jvp: the rule.

        Returns:
            The rule.

        Raises:
            ArgumentError: what is no function.

        >>> import numpy as np
        >>> import tinyxla
        >>> @tinyxla.kernel
        ... def cube(x, out):
        ...     out[:] = x**3
        >>> @cube.defjvp
        ... def rule(primals, tangents):
        ...     return cube(*primals), 3 * primals[0] ** 2 * tangents[0]
        >>> tinyxla.jvp(cube, (np.float32([1, 2]),), (np.float32([1, 1]),))
        (Array([1., 8.], dtype=float32), Array([ 3., 12.], dtype=float32))
        """
        self._set_rule("defjvp", jvp)
        self._rules.pop("defvjp", None)
        return jvp

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the derivative in backward mode: `fwd(*args, **static)` gives the results and residuals,
        `bwd(residuals, g, **static)` a tuple of cotangents of the arguments, as for `custom_vjp`.

        Args:
            fwd, bwd: the rules.

        Raises:
            ArgumentError: what is no function.

        >>> import numpy as np
        >>> import tinyxla
        >>> @tinyxla.kernel
        ... def cube(x, out):
        ...     out[:] = x**3
        >>> cube.defvjp(lambda x: (cube(x), x), lambda x, g: (3 * x**2 * g,))
        >>> tinyxla.grad(lambda x: cube(x).sum())(np.float32([1, 2]))
        Array([ 3., 12.], dtype=float32)
        """
        self._set_rule("defvjp", fwd, bwd)
        self._rules.pop("defjvp", None)

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the batching rule: `rule(axis_size, in_batched, *args, **static)` gives the results and which are
        batched, as for `custom_vmap`.

        Args:
            rule: the rule.

        Returns:
            The rule.

        Raises:
            ArgumentError: what is no function.

        >>> import numpy as np
        >>> import tinyxla
        >>> @tinyxla.kernel
        ... def cube(x, out):
        ...     out[...] = x**3
        >>> @cube.def_vmap
        ... def rule(axis_size, in_batched, x):
        ...     return cube(x), True  # the same kernel, of all examples at once
        >>> tinyxla.vmap(cube)(np.float32([[1, 2], [3, 4]]))
        Array([[ 1.,  8.],
               [27., 64.]], dtype=float32)
        """
        self._set_rule("def_vmap", rule)
        return rule

    def _set_rule(self, method: str, *rules: Callable[..., Any]) -> None:
        for rule in rules:
            check_callable(f"{self.__name__}.{method}", rule)
        self._rules[method] = rules
        self._calls.clear()

    def _with_rules(self, static: dict[str, Any]) -> Callable[..., Any]:
        """The call with these static values, as a function of arrays that has the rules."""

        def call(*args: Any) -> Any:
            return self._apply(*args, **static)

        call.__name__ = self.__name__
        made: Any = call
        makers = {"def_vmap": custom_vmap, "defjvp": custom_jvp, "defvjp": custom_vjp}  # batching below derivatives
        for method, maker in makers.items():
            if method in self._rules:
                made = maker(made)
                getattr(made, method)(*(partial(rule, **static) for rule in self._rules[method]))
        return made

    def _static_key(self, static: dict[str, Any]) -> Any:
        """Equal for static values for which the compiled function is the same: 1 and 1.0, or 0.0 and -0.0, are not."""
        try:
            key = tuple((name, exact(value)) for name, value in sorted(static.items()))
            hash(key)
        except TypeError:
            raise ArgumentError(
                f"kernel {self.__name__}: arguments by keyword are static, and must be hashable, but are {static}."
            ) from None
        return key

    # --- calls

    def _apply(self, *args: Any, **static: Any) -> Any:
        what = f"kernel {self.__name__}"
        operands, _ = arrays_of(args, f"{what}: argument ")
        if len(operands) != len(args):
            raise ArgumentError(f"{what}: each argument is one array; static values are passed by keyword.")
        inputs = [Shape.of(x) for x in operands]
        outputs, tree = self._outputs(inputs)
        shape = outputs[0] if len(outputs) == 1 else TupleShape(tuple(outputs))
        target = self._target(inputs, outputs, static)
        found = custom_call.custom_call(*operands, custom_call_target=target, shape=shape)
        return pytrees.unflatten(tree, [found] if len(outputs) == 1 else list(found))

    def _outputs(self, inputs: Sequence[Shape]) -> tuple[list[Shape], Any]:
        structs = [ShapeDtypeStruct(s.dimensions, s.dtype) for s in inputs]
        leaves, tree = pytrees.flatten(self._out(*structs))
        if not leaves or not all(hasattr(x, "shape") and hasattr(x, "dtype") for x in leaves):
            raise ArgumentError(
                f"kernel {self.__name__}: out must give what has a shape and a dtype for each result, such as "
                f"ShapeDtypeStruct, but gives {leaves}."
            )
        return [Shape(element_type(x.dtype), tuple(x.shape)) for x in leaves], tree

    def _target(self, inputs: list[Shape], outputs: list[Shape], static: dict[str, Any]) -> str:
        """The name of the target for these shapes and static values."""
        key = (tuple(inputs), tuple(outputs), self._static_key(static))
        name = self._targets.get(key)
        if name is None:
            name = self._targets[key] = f"kernel.{self.__name__}.{next(_numbers)}"
            custom_call.targets[name] = self._make_target(name, inputs, outputs, static)
        return name

    def _make_target(self, name: str, inputs: list[Shape], outputs: list[Shape], static: dict[str, Any]) -> Target:
        with requiring("numba", "Numba", f"The kernel {self.__name__}"):
            from tinyxla.backends.numba import interop  # here, since it loads LLVM

        if self._compiled is None:
            self._compiled = interop.compiled_function(self.function)
        for shape, is_written in [*((s, False) for s in inputs), *((s, True) for s in outputs)]:
            interop.numba_type(shape, is_written)  # which refuses what Numba does not have
        made: list[Any] = []  # the native code, once it is asked for

        def compute(*operands: Any, attributes: CustomCall) -> Any:
            results = [np.empty(s.dimensions, s.dtype) for s in outputs]
            given = [_read_only(x) for x in operands]
            self._compiled(*given, *results, **static)
            return tuple(results) if isinstance(attributes.shape, TupleShape) else results[0]

        def address() -> int:
            if not made:
                made.append(interop.native_function(self._compiled, inputs, outputs, static, lambda: _failed(name)))
            return int(made[0].address)

        def batch(size: int, operands: tuple[Any, ...], axes: tuple[int | None, ...]) -> Any:
            return self._batched(size, operands, axes, static)

        def derivative(*ignored: Any) -> Any:
            raise DifferentiationError(
                f"The kernel {self.__name__} has no derivative; give it one with {self.__name__}.defjvp or "
                f"{self.__name__}.defvjp."
            )

        return Target(compute, derivative, derivative, batch, address)

    def _batched(
        self, size: int, operands: tuple[Any, ...], axes: tuple[int | None, ...], static: dict[str, Any]
    ) -> Any:
        moved = [x if a is None else movement.move_axis(x, a, 0) for x, a in zip(operands, axes, strict=True)]
        if self._vmap == "broadcast":
            whole = [x if a is not None else _repeated(x, size) for x, a in zip(moved, axes, strict=True)]
            for shape in self._outputs(list(map(Shape.of, whole)))[0]:
                if shape.dimensions[:1] != (size,):
                    raise ShapeError(
                        f"kernel {self.__name__}: with vmap='broadcast' results have the mapped axis, of size {size}, "
                        f"first, but out gives one of shape {shape.dimensions}."
                    )
            results = self._apply(*whole, **static)
        else:
            mapped = [x for x, a in zip(moved, axes, strict=True) if a is not None]

            def one(values: Any) -> Any:
                given = iter(values)
                return self._apply(
                    *(x if a is None else next(given) for x, a in zip(moved, axes, strict=True)), **static
                )

            results = map_(one, mapped)
        leaves = pytrees.leaves(results)
        return (tuple(leaves), (0,) * len(leaves)) if len(leaves) > 1 else (leaves[0], 0)


def kernel(
    function: Callable[..., Any] | None = None, *, out: Callable[..., Any] | None = None, vmap: str = "sequential"
) -> Any:
    """Make a function that Numba compiles an operation of arrays: a decorator.

    The function takes NumPy arrays, the arguments first, which it may not write, then an array for each result, which
    it fills. Compiled programs call its machine code without Python, also in loops; its arrays are row-major.

    Args:
        function: one of `numba.njit`, or a plain function, which is compiled so.
        out: the results' shapes and types: of a `ShapeDtypeStruct` for each argument it gives one, or a pytree of such.
            The first argument's, if not given.
        vmap: "sequential": a mapped axis is a loop around the kernel. "broadcast": the kernel takes the mapped axis as
            a further first dimension of all arguments and results. See also `Kernel.def_vmap`.

    Returns:
        A `Kernel`: called with arrays and with static values by keyword. Derivatives are those that are set by
        `defjvp` or `defvjp`.

    Raises:
        MissingPackageError: when it is called, without Numba.
        DTypeError: for element types that Numba does not compile (floats of 16 and 8 bits).
        KernelError: the function raised an exception in a compiled program.

    Example:
        >>> import numba, tinyxla as tx
        >>> @tx.kernel
        ... @numba.njit
        ... def smooth(x, out):
        ...     out[:] = x
        ...     for i in range(1, len(x) - 1):
        ...         out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3
        >>> tx.jit(lambda x: 2 * smooth(x))(tx.numpy.array([0.0, 3.0, 0.0]))
        Array([0., 2., 0.], dtype=float32)
    """
    if vmap not in _BATCHING:
        raise ArgumentError(f"kernel: vmap must be 'sequential' or 'broadcast', but is {vmap!r}.")
    if function is None:
        return lambda f: kernel(f, out=out, vmap=vmap)
    if not callable(function):
        raise ArgumentError(f"kernel takes a function, but got {function!r}.")
    return Kernel(function, out or (lambda x, *others: x), vmap)


def _repeated(x: Any, size: int) -> Any:
    """An array once more for each place of a new first axis."""
    return movement.broadcast(x, sizes=(size, *x.shape), dimensions=tuple(range(1, x.ndim + 1)))


def _read_only(x: Any) -> Any:
    view = np.ascontiguousarray(x).reshape(np.shape(x)).view()
    view.flags.writeable = False
    return view


def _failed(name: str) -> None:
    """Remember that a kernel raised an exception: its program raises when it ends."""
    custom_call.failures[threading.get_ident()] = name


def __dir__() -> list[str]:
    return __all__
