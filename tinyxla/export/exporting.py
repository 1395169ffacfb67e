"""Exporting: a compiled function is traced for the types of its arguments, and written as StableHLO."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyxla.api.aot import Compiled, Lowered
from tinyxla.api.derivatives import vjp
from tinyxla.api.functions import ShapeDtypeStruct, argument_names, name_of
from tinyxla.api.jit import Jitted, jit
from tinyxla.compiler.passes.expand import expand_to_stablehlo
from tinyxla.errors import ArgumentError, AttributeValueError, PlatformsDifferError
from tinyxla.export.exported import (
    DisabledSafetyCheck,
    Exported,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from tinyxla.export.layouts import layouts_of
from tinyxla.hlo import Module
from tinyxla.lax.values import platform_index
from tinyxla.ops import movement
from tinyxla.ops.linalg.lapack import STABLE_TARGETS
from tinyxla.shapes import KeyType, element_type
from tinyxla.shapes.symbolic import has_symbolic, is_symbolic
from tinyxla.text.mlir.ir import DenseAttr, FunctionType, ModuleOp, Operation, StringAttr, TensorType, Value, walk
from tinyxla.text.stablehlo import module_op
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import config, setting
from tinyxla.tracing.promotion import as_array, float0
from tinyxla.util.tracebacks import boundary

_SAFE_TARGETS = ("shape_assertion", "stablehlo.")


def default_export_platform() -> str:
    """The platform for which functions are exported if none is named: "cpu".

    Returns:
        "cpu".

    Example:
        >>> from tinyxla import export
        >>> export.default_export_platform()
        'cpu'
    """
    return "cpu"


@boundary
def export(
    fun_jit: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[Any] = (),
    _override_lowering_rules: Any = None,
) -> Callable[..., Exported]:
    """Make a compiled function into a program that is kept, sent, and run elsewhere, by XLA also.

    Args:
        fun_jit: what `jit` gives, or a function of this library.
        platforms: on which the program may run, such as "cpu", "cuda", "rocm" and "tpu"; by default "cpu". If they are
            several, the program takes the number of the platform, by which `lax.platform_dependent` chooses.
        disabled_checks: checks that are not made.
        _override_lowering_rules: accepted for compatibility.

    Returns:
        A function of arguments of `fun_jit`, or of `ShapeDtypeStruct`s in their place, which gives an `Exported`. With
        symbolic dimensions in the shapes (`symbolic_shape`) the program runs for all their sizes: the function is
        traced once, and what it asks of `x.shape` are then symbolic dimensions.

    Raises:
        ArgumentError: no compiled function, no platform; when it is called: an operation has no form in StableHLO,
            symbolic dimensions are of different scopes, or a variable does not follow from the arguments' sizes.
        InconclusiveDimensionOperation: what the function does depends on the order or the values of sizes.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla import export
        >>> (b,) = export.symbolic_shape("b")
        >>> mean = tx.jit(lambda x: x.sum(0) / x.shape[0])
        >>> exported = export.export(mean)(tx.ShapeDtypeStruct((b, 2), "float32"))
        >>> exported.call(tx.numpy.array([[1.0, 2.0], [3.0, 4.0]]))
        Array([2., 3.], dtype=float32)
    """
    if inspect.isfunction(fun_jit) and fun_jit.__module__.partition(".")[0] == "tinyxla":
        fun_jit = jit(fun_jit)  # a function of the library, such as `numpy.sin`
    if not isinstance(fun_jit, Jitted):
        raise ArgumentError(f"export takes a compiled function, but got {fun_jit!r}; export(jit(f)).")
    chosen = _checked_platforms(platforms)
    checks = tuple(disabled_checks)
    if not all(isinstance(check, DisabledSafetyCheck) for check in checks):
        raise ArgumentError(f"export: disabled_checks are DisabledSafetyCheck objects, but got {disabled_checks!r}.")

    @boundary
    def exported(*args: Any, **kwargs: Any) -> Exported:
        _check_scopes(fun_jit, args, kwargs)
        in_tree = pytrees.flatten_shown(fun_jit._split(args, kwargs)[:2])[1]  # pyright: ignore[reportPrivateUsage]
        function = _static_free(args, kwargs, in_tree, fun_jit)
        lowered, module = _lowered(
            lambda: fun_jit.trace(*args, **kwargs).lower(),
            lambda *leaves: function(leaves),
            pytrees.flatten_shown(fun_jit._split(args, kwargs)[:2])[0],  # pyright: ignore[reportPrivateUsage]
            chosen,
            name_of(fun_jit),
        )
        made = _program_of(lowered, module, in_tree, chosen, checks)
        return replace(made, get_vjp=lambda made: vjp_of(made, function))

    return exported


def _lowering_for(platforms: tuple[str, ...]) -> contextlib.AbstractContextManager[Any]:
    """A context in which functions are traced for these platforms."""
    is_here = platforms == (default_export_platform(),)
    return contextlib.nullcontext() if is_here else setting("lowering_platforms", platforms)


def _lowered(
    lower: Callable[[], Lowered],
    function: Callable[..., Any],
    types: Sequence[Any],
    platforms: tuple[str, ...],
    name: str,
) -> tuple[Lowered, ModuleOp]:
    """The program of a function of arrays for platforms; if these are several, it takes the number of the platform
    first. If the function is not the same for all of them, it is traced with that number."""

    def program(index: Any, *arrays: Any) -> Any:
        with platform_index(index):
            return function(*arrays)

    program.__name__ = name
    takes_index = False
    with _lowering_for(platforms):
        try:
            lowered = lower()
        except PlatformsDifferError:
            takes_index = True
            lowered = jit(program).trace(ShapeDtypeStruct((), "int32"), *types).lower()
            if layouts_of(lowered._program) is not None:  # pyright: ignore[reportPrivateUsage]
                raise PlatformsDifferError(
                    f"export of {name}: a program of several devices has one function for all platforms; export it for "
                    "each platform by itself."
                ) from None
    module = _module(lowered)
    _check_lapack(name, module, platforms)
    if len(platforms) > 1:
        main = module.functions["main"]
        if not takes_index:
            index = Value(TensorType((), "i32"))
            main.body.block.arguments.insert(0, index)
            main.type = FunctionType((index.type, *main.type.inputs), main.type.results)
            main.argument_attributes = [{}, *main.argument_attributes] if main.argument_attributes else []
        others = list(main.argument_attributes)[1:] or [{} for _ in main.type.inputs[1:]]
        main.argument_attributes = [{"jax.global_constant": StringAttr(b"_platform_index")}, *others]
    return lowered, module


def _check_lapack(name: str, module: ModuleOp, platforms: Sequence[str]) -> None:
    """Refuse calls of LAPACK in programs for other platforms than CPUs."""
    called = next((target for target in _custom_calls(module) if target.startswith("lapack_")), None)
    if called is not None and set(platforms) != {"cpu"}:
        raise ArgumentError(
            f"export of {name}: it calls {called!r}, which there is on CPUs alone, but its platforms are "
            f'{list(platforms)}; export it with platforms=["cpu"].'
        )


def _asked_version() -> int:
    """The calling convention that the option asks for."""
    low, high = minimum_supported_calling_convention_version, maximum_supported_calling_convention_version
    version: int = config.export_calling_convention_version or high
    if not low <= version <= high:
        raise AttributeValueError(
            f"export: the option 'export_calling_convention_version' must be from {low} to {high}, but is {version}."
        )
    return version


def exported_program(stage: Lowered | Compiled, platforms: tuple[str, ...]) -> Exported:
    """A program without a derivative."""
    return _program_of(stage, _module(stage), _flat(stage.argument_types)[1], platforms, ())


def _program_of(
    stage: Lowered | Compiled,
    module: ModuleOp,
    in_tree: pytrees.TreeDef,
    platforms: tuple[str, ...],
    checks: tuple[DisabledSafetyCheck, ...],
) -> Exported:
    """A program without a derivative, of the last of its arguments, which have that structure."""
    if stage.uses_references:
        raise ArgumentError(
            f"export of {stage.fun_name}: it reads or writes a Ref, which an exported program does not have; give the "
            "array as an argument and the updated one as a result."
        )
    in_avals = _flat(stage.argument_types)[0]
    in_avals = in_avals[len(in_avals) - in_tree.num_leaves :]
    out_avals, out_tree = _flat(stage.out_info)
    _add_float0_results(module, out_avals)
    layouts = layouts_of(stage._program)  # pyright: ignore[reportPrivateUsage]
    _check_custom_calls(stage.fun_name, module, checks)
    return Exported(
        fun_name=stage.fun_name,
        in_tree=in_tree,
        in_avals=in_avals,
        out_tree=out_tree,
        out_avals=out_avals,
        platforms=platforms,
        module_kept_var_idx=tuple(range(len(in_avals))),
        module=module,
        disabled_safety_checks=checks,
        nr_devices=1 if layouts is None else layouts.mesh.size,
        layouts=layouts,
        calling_convention_version=_asked_version(),
    )


def _add_float0_results(module: ModuleOp, out_avals: Sequence[ShapeDtypeStruct]) -> None:
    """Let `@main` give False for results of the type float0, which a compiled function does not compute."""
    main = module.functions["main"]
    if len(main.type.results) == len(out_avals) or any(has_symbolic(t.shape) for t in out_avals if t.dtype == float0):
        return
    *operations, ending = main.body.block.operations
    found, given = list[Value](), iter(ending.operands)
    for t in out_avals:
        if t.dtype != float0:
            found.append(next(given))
            continue
        type = TensorType(tuple(t.shape), "i1")
        value = Value(type)
        zeros = DenseAttr(np.broadcast_to(np.False_, t.shape), type)
        operations.append(Operation("stablehlo.constant", [], [value], {"value": zeros}))
        found.append(value)
    ending.operands = found
    main.body.block.operations[:] = [*operations, ending]
    main.type = FunctionType(main.type.inputs, tuple(x.type for x in found))


def _module(lowered: Lowered | Compiled) -> ModuleOp:
    """The program of whole arrays."""
    made = lowered._program.computation  # pyright: ignore[reportPrivateUsage]
    return module_op(Module(lowered.fun_name, expand_to_stablehlo(made)))


def _checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    if platforms is None:
        return (default_export_platform(),)
    chosen = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    if not chosen or not all(isinstance(p, str) for p in chosen):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"export: platforms are names such as 'cpu' or 'tpu', at least one, but got {platforms!r}.")
    return chosen


def _check_scopes(fun_jit: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse arguments whose symbolic dimensions are of different scopes."""
    leaves = pytrees.flatten_shown((args, kwargs))[0]
    found: list[tuple[str, Any]] = [
        (name, size)
        for name, x in zip(argument_names(args, kwargs), leaves, strict=True)
        for size in (x.shape if isinstance(x, ShapeDtypeStruct) else ())
        if is_symbolic(size)
    ]
    for name, size in found:
        if size.scope is not found[0][1].scope:
            raise ArgumentError(
                f"export of {name_of(fun_jit)}: the symbolic dimensions of its arguments are of different scopes: "
                f"{size} of argument {name} is of another scope than {found[0][1]} of argument {found[0][0]}; make "
                "them by one call of symbolic_shape, or pass a scope: symbolic_shape(..., scope=scope)."
            )


def _flat(info: Any) -> tuple[tuple[ShapeDtypeStruct, ...], pytrees.TreeDef]:
    leaves, tree = pytrees.flatten_shown(info)
    return tuple(leaves), tree


def _check_custom_calls(name: str, module: ModuleOp, checks: Sequence[DisabledSafetyCheck]) -> None:
    allowed = {check.is_custom_call() for check in checks}
    for target in _custom_calls(module):
        if target not in allowed and target not in STABLE_TARGETS and not target.startswith(_SAFE_TARGETS):
            raise ArgumentError(
                f"export of {name}: it calls {target!r}, which other programs need not know; if the reader does, "
                f"export it with disabled_checks=[DisabledSafetyCheck.custom_call({target!r})]."
            )


def _custom_calls(module: ModuleOp) -> Iterator[str]:
    for function in module.functions.values():
        for operation in walk(function.body):
            target = operation.attributes.get("call_target_name")
            if operation.name == "stablehlo.custom_call" and isinstance(target, StringAttr):
                yield target.text


def _static_free(args: Any, kwargs: Any, in_tree: pytrees.TreeDef, function: Jitted[..., Any]) -> Callable[..., Any]:
    """The function of the leaves of the arguments that are not static."""
    held = function._split(args, kwargs)[2]  # pyright: ignore[reportPrivateUsage]
    inner = function._with_static(len(args), held)  # pyright: ignore[reportPrivateUsage]

    def of_leaves(leaves: Sequence[Any]) -> Any:
        given, named = pytrees.unflatten(in_tree, leaves)
        return inner(*given, **named)

    return of_leaves


def has_derivative(t: ShapeDtypeStruct) -> bool:
    """Whether there are derivatives by arrays of a type."""
    return not isinstance(t.dtype, KeyType) and t.dtype != float0 and element_type(t.dtype).is_inexact


def vjp_of(exported: Exported, function: Callable[[Sequence[Any]], Any]) -> Exported:
    """The derivative of a function of the arguments' leaves, exported."""
    primals, results = exported.in_avals, exported.out_avals
    inputs = [k for k, t in enumerate(primals) if has_derivative(t)]
    outputs = [k for k, t in enumerate(results) if has_derivative(t)]
    taken = [k for k, t in enumerate(primals) if t.dtype != float0]

    def pullback(*arrays: Any) -> tuple[Any, ...]:
        leaves: list[Any] = [None] * len(primals)
        for k, x in zip(taken, arrays, strict=False):
            leaves[k] = x

        def of_inputs(*xs: Any) -> list[Any]:
            whole = list(leaves)
            for k, x in zip(inputs, xs, strict=True):
                whole[k] = x
            found = pytrees.flatten_shown(function(whole))[0]
            return [as_array(found[k]) for k in outputs]

        _, pull = vjp(of_inputs, *(leaves[k] for k in inputs))
        return tuple(pull(list(arrays[len(taken) :])))

    strong = tuple(t if t.dtype == float0 else t.update(weak_type=False) for t in primals)
    in_avals = (*strong, *(t.update(weak_type=False) if has_derivative(t) else no_derivative(t) for t in results))
    out_avals = tuple(t if has_derivative(t) else no_derivative(t) for t in strong)
    kept = tuple(k for k, t in enumerate(in_avals) if t.dtype != float0)
    types = [in_avals[k] for k in kept]

    def program(*arrays: Any) -> tuple[Any, ...]:
        """With False for cotangents of integers, as the program of JAX has it."""
        found = iter(pullback(*arrays))
        return tuple(next(found) if has_derivative(t) else movement.full(False, np.bool_, t.shape) for t in strong)

    program.__name__ = f"vjp_{exported.fun_name}"
    _, module = _lowered(
        lambda: jit(program).trace(*types).lower(), program, types, exported.platforms, program.__name__
    )
    return Exported(
        fun_name=program.__name__,
        in_tree=pytrees.flatten_shown((in_avals, {}))[1],
        in_avals=in_avals,
        out_tree=pytrees.flatten_shown(out_avals)[1],
        out_avals=out_avals,
        platforms=exported.platforms,
        module_kept_var_idx=kept,
        module=module,
        disabled_safety_checks=exported.disabled_safety_checks,
        nr_devices=exported.nr_devices,
        layouts=None if exported.layouts is None else exported.layouts.of_derivative(),
        get_vjp=lambda made: vjp_of(made, lambda leaves: _with_zeros(made, pullback, leaves)),
    )


def _with_zeros(made: Exported, function: Callable[..., Any], leaves: Sequence[Any]) -> Any:
    """The function of what has a derivative, with None where there is none."""
    found = iter(function(*(leaves[k] for k in made.module_kept_var_idx)))
    return tuple(next(found) if has_derivative(t) else object() for t in made.out_avals)


def no_derivative(t: ShapeDtypeStruct) -> ShapeDtypeStruct:
    """The type of the derivative by integers."""
    found = ShapeDtypeStruct(t.shape, "bool")
    object.__setattr__(found, "dtype", float0)
    return found
