"""`custom_partitioning`: functions that say themselves what each device of a mesh computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import OfLeaves, ShapeDtypeStruct, arrays_of, check_callable, name_of, trace_tree
from tinyxla.errors import ArgumentError, ClosedOverTracerError
from tinyxla.ops.op import Factors
from tinyxla.partitioning.common_meshes import translated
from tinyxla.partitioning.placement import is_placement
from tinyxla.partitioning.sharding_rules import SdyShardingRule, factors_of_rule, read_rule
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import Tracer, state
from tinyxla.tracing.meshes import AbstractMesh
from tinyxla.tracing.shardings import NamedSharding, Spec, axes_of, spec_of
from tinyxla.transforms.calls import CallPlan, Partitioning, call
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import wraps

Function = Callable[..., Any]
Layouts = Sequence[tuple[Shape, Spec]]


class custom_partitioning:
    """A function with rules for its partitioning: in a compiled program over a mesh, each device computes what its
    `partition` says. On one device, outside of compiled functions, and where it is differentiated or mapped, it is the
    function itself.

    Args:
        fun: of positional arguments, pytrees of arrays.
        static_argnums: positions of arguments that stay Python values. The rules get them first.

    Raises:
        ArgumentError: what is no function, or a call with keywords that have no position.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.experimental.custom_partitioning import custom_partitioning
        >>> double = custom_partitioning(lambda x: 2 * x)
        >>> def partition(mesh, arguments, result):
        ...     return mesh, lambda x: 2 * x, result.sharding, (arguments[0].sharding,)
        >>> _ = double.def_partition(partition, sharding_rule="... -> ...")
        >>> tx.jit(double)(3.0)
        Array(6., dtype=float32, weak_type=True)
    """

    def __init__(self, fun: Function, static_argnums: Sequence[int] = ()) -> None:
        check_callable("custom_partitioning", fun)
        wraps(fun)(self)
        self.fun = fun
        self.static_argnums = tuple(static_argnums)
        self.partition: Function | None = None
        self.infer_sharding_from_operands: Function | None = None
        self.propagate_user_sharding: Function | None = None
        self.sharding_rule: Any = None

    def def_partition(
        self,
        partition: Function,
        infer_sharding_from_operands: Function | None = None,
        propagate_user_sharding: Function | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> Function:
        """Set the rules.

        Args:
            partition: `partition(mesh, arguments, result)` of pytrees of `ShapeDtypeStruct`s with the shardings that
                were found. It returns the mesh, the function of the parts of a device, and the shardings of results
                and arguments that this function has; arrays are brought to these.
            infer_sharding_from_operands: `infer_sharding_from_operands(mesh, arguments, result)`, the shardings of the
                result. Used without a `sharding_rule`.
            propagate_user_sharding: `propagate_user_sharding(mesh, result)`, the shardings of the result where what
                uses it has those. Used without a `sharding_rule`.
            decode_shardings: has no effect, since all shardings are `NamedSharding`s.
            sharding_rule: which dimensions are split alike: text such as "... i j, j k -> ... i k", an
                `SdyShardingRule`, or a function of the mesh and of the structures of arguments and results that
                returns such.
            reduction_factors, need_replication_factors, permutation_factors, **factor_sizes: see `SdyShardingRule`;
                with text.

        Returns:
            `partition`, so that this can decorate it.

        Raises:
            ArgumentError: what is no function, or text that is no rule.

        Example:
            >>> from tinyxla.experimental.custom_partitioning import custom_partitioning
            >>> product = custom_partitioning(lambda x, y: x @ y)
            >>> def partition(mesh, arguments, result):
            ...     return mesh, lambda x, y: x @ y, result.sharding, [x.sharding for x in arguments]
            >>> _ = product.def_partition(partition, sharding_rule="i j, j k -> i k", need_replication_factors=("j",))
        """
        check_callable("def_partition", partition)
        special = {
            "reduction_factors": tuple(reduction_factors),
            "need_replication_factors": tuple(need_replication_factors),
            "permutation_factors": tuple(permutation_factors),
        }
        keywords = {name: names for name, names in special.items() if names} | factor_sizes
        if sharding_rule is None or callable(sharding_rule) or isinstance(sharding_rule, SdyShardingRule):
            if keywords:
                raise ArgumentError(f"def_partition: {sorted(keywords)} go with a sharding rule that is text.")
        else:
            sharding_rule = read_rule(sharding_rule, **keywords)
        self.partition = partition
        self.infer_sharding_from_operands = infer_sharding_from_operands
        self.propagate_user_sharding = propagate_user_sharding
        self.sharding_rule = sharding_rule
        return partition

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentError(
                f"{name_of(self.fun)}: the arguments of a function of custom_partitioning have positions, but "
                f"{sorted(bound.kwargs)} have none."
            )
        args = bound.args
        static = {n % len(args) for n in self.static_argnums if -len(args) <= n < len(args)}
        values = tuple(args[n] for n in sorted(static))
        if any(isinstance(x, Tracer) for x in pytrees.leaves(values)):
            raise ArgumentError(
                f"{name_of(self.fun)}: a static argument of custom_partitioning is a Python value, but has a traced "
                "array; leave its position out of static_argnums."
            )
        free = [n for n in range(len(args)) if n not in static]
        what = f"{name_of(self.fun)}: the arguments"
        leaves, structure = arrays_of(tuple(args[n] for n in free), what)
        given = pytrees.unflatten(structure, leaves)

        @wraps(self.fun)
        def of_arrays(*arrays: Any) -> Any:
            return self.fun(*(args[n] if n in static else arrays[free.index(n)] for n in range(len(args))))

        if self.partition is None or not state.depth:
            return of_arrays(*given)
        made, captured, weak, tree = trace_tree(of_arrays, given, {})
        if captured:
            raise ClosedOverTracerError(
                f"{name_of(self.fun)}: a function of custom_partitioning uses a traced array from around; pass it as "
                "an argument.",
                state.source,
            )
        rules = _Rules(self, values, structure, tree)
        found = call(*leaves, to_apply=made, partitioning=rules.partitioning())
        outputs = found if isinstance(found, tuple) else (found,)
        return pytrees.unflatten(tree, [x.with_weak_type(w) for x, w in zip(outputs, weak, strict=True)])


class _Rules:
    """The rules of a function for a call, of whose arguments and result the structures are known."""

    def __init__(self, function: custom_partitioning, static: Sequence[Any], arguments: Any, result: Any) -> None:
        self.name = name_of(function.fun)
        self.partition = function.partition
        self.infer_rule = function.infer_sharding_from_operands
        self.propagate_rule = function.propagate_user_sharding
        self.rule = function.sharding_rule
        self.static = tuple(static)
        self.arguments = arguments
        self.result = result

    def partitioning(self) -> Partitioning:
        """Them as the partitioner asks for them."""
        by_operands = self.infer if self.rule is None and self.infer_rule is not None else None
        return Partitioning(self.factors, by_operands, self.plan)

    def factors(self, mesh: AbstractMesh, operands: Sequence[Shape], results: Sequence[Shape]) -> Factors:
        """The sharding rule; without one nothing is known of a sharding by another."""
        rule = self.rule
        if rule is None:
            whole = [tuple((None,) * s.rank for s in shapes) for shapes in (operands, results)]
            return Factors(whole[0], whole[1])
        if not isinstance(rule, SdyShardingRule):
            given: Any = rule(*self.static, mesh, _structs(operands), _structs(results))
            pair: Any = given if isinstance(given, tuple | list) and len(given) == 2 else (given, {})  # pyright: ignore[reportUnknownArgumentType]
            rule = pair[0] if isinstance(pair[0], SdyShardingRule) else read_rule(pair[0], **pair[1])
        return factors_of_rule(rule, operands, results)

    def infer(self, mesh: AbstractMesh, operands: Layouts, results: Sequence[Shape]) -> list[Spec]:
        """The shardings of results from those of the operands."""
        assert self.infer_rule is not None
        described = pytrees.unflatten(self.result, _structs(results))
        found = self.infer_rule(*self.static, mesh, self._described(self.arguments, mesh, operands), described)
        return self._specs("infer_sharding_from_operands", found, results, mesh)

    def plan(self, mesh: AbstractMesh, operands: Layouts, results: Layouts) -> CallPlan:
        """The plan of a call: its function of the parts of one device, and the shardings of these."""
        assert self.partition is not None
        arguments, result = self._described(self.arguments, mesh, operands), self._described(self.result, mesh, results)
        shapes = [s for s, _ in results]
        if self.rule is None and self.propagate_rule is not None:
            wanted = self.propagate_rule(*self.static, mesh, result)
            specs = self._specs("propagate_user_sharding", wanted, shapes, mesh)
            result = self._described(self.result, mesh, list(zip(shapes, specs, strict=True)))
        given = self.partition(*self.static, mesh, arguments, result)
        if not isinstance(given, tuple | list) or len(given) != 4:
            raise ArgumentError(
                f"{self.name}: partition returns the mesh, the function of parts, and the shardings of results and "
                f"arguments, but gave {given!r}."
            )
        own, function, of_results, of_operands = given
        if not isinstance(own, AbstractMesh) or own.shape_tuple != mesh.shape_tuple:
            raise ArgumentError(f"{self.name}: partition returns the mesh that it got, {mesh}, but gave {own!r}.")
        outputs = self._specs("partition, for the results,", of_results, shapes, mesh)
        inputs = self._specs("partition, for the arguments,", of_operands, [s for s, _ in operands], mesh)
        flat = OfLeaves(function, self.arguments)

        return CallPlan(self.name, flat, inputs, outputs)

    def _described(self, structure: Any, mesh: AbstractMesh, layouts: Layouts) -> Any:
        """A pytree of the structures of arrays with shardings."""
        shardings = [NamedSharding(mesh, spec_of(spec, s.rank)) for s, spec in layouts]
        pairs = zip(layouts, shardings, strict=True)
        structs = [ShapeDtypeStruct(s.dimensions, s.dtype, sharding=sharding) for (s, _), sharding in pairs]
        return pytrees.unflatten(structure, structs)

    def _specs(self, what: str, shardings: Any, shapes: Sequence[Shape], mesh: AbstractMesh) -> list[Spec]:
        """The shardings that a rule returns, over the mesh of the program."""
        leaves, _ = pytrees.flatten_shown(shardings, is_placement)
        if len(leaves) != len(shapes) or not all(isinstance(x, NamedSharding) for x in leaves):
            raise ArgumentError(
                f"{self.name}: {what} returns a NamedSharding for each of {len(shapes)} arrays, but gave {shardings!r}."
            )
        found: list[Spec] = []
        for sharding, shape in zip(leaves, shapes, strict=True):
            spec = tuple(map(axes_of, sharding.spec))
            spec = translated((*spec, *((),) * (shape.rank - len(spec))), sharding.mesh, mesh)
            if spec is None or len(spec) != shape.rank:
                raise ArgumentError(
                    f"{self.name}: {what} returns a sharding of {shape} over {mesh}, but gave {sharding!r}."
                )
            found.append(spec)
        return found


def _structs(shapes: Sequence[Shape]) -> list[ShapeDtypeStruct]:
    return [ShapeDtypeStruct(s.dimensions, s.dtype) for s in shapes]
