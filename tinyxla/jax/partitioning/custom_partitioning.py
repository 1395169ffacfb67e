"""Functions with rules for their partitioning, as JAX has them, and the rules in Shardy's form. The parts of such a
function are partitioned like all other operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import check_callable
from tinyxla.errors import ArgumentError
from tinyxla.util.wrapping import wraps

BATCHING = "…"  # stands for leading dimensions


class CompoundFactor(tuple[str, ...]):
    """Factors that a dimension is the product of."""

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ArgumentError(f"CompoundFactor: there must be at least two factors, but got {factors}.")
        return super().__new__(cls, factors)


class ArrayMapping(tuple[Any, ...]):
    """The factor, or factors, of each dimension of an array."""

    def __new__(cls, *dim_mappings: Any) -> ArrayMapping:
        return super().__new__(cls, dim_mappings)


class SdyShardingRule:
    """The factors of operands and results: dimensions of one factor are split alike.

    >>> SdyShardingRule((("i", "j"),), (("i",),), reduction_factors=("j",))
    SdyShardingRule((('i', 'j'),), (('i',),), {})
    """

    def __init__(
        self,
        operand_mappings: Sequence[Any],
        result_mappings: Sequence[Any],
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings = tuple(operand_mappings)
        self.result_mappings = tuple(result_mappings)
        self.reduction_factors = tuple(reduction_factors)
        self.need_replication_factors = tuple(need_replication_factors)
        self.permutation_factors = tuple(permutation_factors)
        self.factor_sizes = factor_sizes

    def __repr__(self) -> str:
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes})"


class custom_partitioning:
    """A function with rules for its partitioning.

    Args:
        fun: of arrays.
        static_argnums: positions of arguments that stay Python values.

    >>> double = custom_partitioning(lambda x: 2 * x)
    >>> double.def_partition(partition=lambda mesh, args, result: None, sharding_rule="i -> i")
    >>> double(3.0)
    6.0
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: Any = ()) -> None:
        check_callable("custom_partitioning", fun)
        wraps(fun)(self)
        self.fun = fun
        self.static_argnums = static_argnums

    def def_partition(
        self,
        partition: Callable[..., Any],
        infer_sharding_from_operands: Any = None,
        propagate_user_sharding: Any = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> None:
        """Keep the rules.

        Raises:
            ArgumentError: a rule in words without an arrow between operands and results.
        """
        check_callable("def_partition", partition)
        if isinstance(sharding_rule, str) and sharding_rule.count("->") != 1:
            raise ArgumentError(
                f"def_partition: sharding_rule has the factors of operands, '->', and those of results, but is "
                f"{sharding_rule!r}."
            )
        self.partition = partition
        self.sharding_rule = sharding_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)
