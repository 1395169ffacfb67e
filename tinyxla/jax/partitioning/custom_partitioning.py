"""`custom_partitioning` as JAX's interface has it: with Shardy, on unless an option says otherwise, shardings are found
by a sharding rule alone."""

from __future__ import annotations

from typing import Any

from tinyxla.api import custom_partitioning as own
from tinyxla.api.functions import name_of
from tinyxla.errors import PartitioningRuleError
from tinyxla.tracing.config import config
from tinyxla.util.tracebacks import boundary


class custom_partitioning(own.custom_partitioning):
    """A function with rules for its partitioning; see `tinyxla.experimental.custom_partitioning`.

    Raises:
        PartitioningRuleError: a call of a function that has other rules for propagation than a sharding rule.

    >>> double = custom_partitioning(lambda x: 2 * x)
    >>> _ = double.def_partition(partition=lambda mesh, args, result: None, sharding_rule="... -> ...")
    >>> double(3.0)
    Array(6., dtype=float32, weak_type=True)
    """

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        has_others = self.infer_sharding_from_operands is not None or self.propagate_user_sharding is not None
        if self.sharding_rule is None and has_others and config.use_shardy_partitioner is not False:
            raise PartitioningRuleError(
                f"{name_of(self.fun)}: infer_sharding_from_operands and propagate_user_sharding are used where the "
                "option use_shardy_partitioner is False; pass sharding_rule to def_partition. In JAX: Need to provide "
                "sharding_rule to migrate to Shardy."
            )
        return super().__call__(*args, **kwargs)
