"""Sharding rules that users write, in Shardy's form: which dimensions of operands and results are split alike.

Source: "Shardy", section "Sharding rule".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.ops.op import Dimensions, Factors
from tinyxla.shapes import Shape

BATCHING = "…"  # stands for leading dimensions
_TOKEN = re.compile(r"\s*(\.\.\.\d*|[A-Za-z][A-Za-z0-9_]*|[(),])")


class CompoundFactor(tuple[str, ...]):
    """The factors of a dimension that is the product of several, the major one first.

    Args:
        *factors: two names at least.

    Raises:
        ArgumentError: fewer than two, or one that is no name.

    Example:
        >>> from tinyxla.experimental.custom_partitioning import CompoundFactor
        >>> CompoundFactor("i", "k")
        ('i', 'k')
    """

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ArgumentError(f"CompoundFactor: there must be at least two factors, but got {factors}.")
        for factor in factors:
            _check_name("CompoundFactor", factor)
        return super().__new__(cls, factors)


class ArrayMapping(tuple[Any, ...]):
    """The factors of the dimensions of an array.

    Args:
        *dim_mappings: for each dimension the name of a factor, or a `CompoundFactor`. The first may be `BATCHING`,
            which stands for any number of leading dimensions.

    Raises:
        ArgumentError: what is no factor, or `BATCHING` in another place.

    Example:
        >>> from tinyxla.experimental.custom_partitioning import BATCHING, ArrayMapping
        >>> ArrayMapping(BATCHING, "i")
        ('…', 'i')
    """

    def __new__(cls, *dim_mappings: Any) -> ArrayMapping:
        for k, factor in enumerate(dim_mappings):
            if isinstance(factor, CompoundFactor):
                continue
            if not _is_batch(factor):
                _check_name("ArrayMapping", factor)
            elif k:
                raise ArgumentError(f"ArrayMapping: BATCHING stands before all other dimensions, but has place {k}.")
        return super().__new__(cls, dim_mappings)


def _is_batch(factor: Any) -> bool:
    return isinstance(factor, str) and factor.startswith(BATCHING)


def _check_name(what: str, factor: Any) -> None:
    if not isinstance(factor, str) or re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", factor) is None:
        raise ArgumentError(f"{what}: a factor is a name of letters, digits and underscores, but got {factor!r}.")


class SdyShardingRule:
    """Which dimensions of operands and results are split alike: those of one factor.

    Args:
        operand_mappings, result_mappings: for each array the factors of its dimensions, as of `ArrayMapping`.
        reduction_factors: factors of operands that are reduced over.
        need_replication_factors: factors along which devices need all elements.
        permutation_factors: factors along which devices exchange elements.
        **factor_sizes: the sizes of factors that are parts of compound ones alone.

    Raises:
        ArgumentError: a factor that does not occur, one whose size is missing or known otherwise, or one of several
            kinds.

    Example:
        >>> from tinyxla.experimental.custom_partitioning import SdyShardingRule
        >>> SdyShardingRule((("i", "j"),), (("i",),), reduction_factors=("j",))
        SdyShardingRule((('i', 'j'),), (('i',),), {} reduction_factors=('j',))
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
        self.operand_mappings = tuple(ArrayMapping(*x) for x in operand_mappings)
        self.result_mappings = tuple(ArrayMapping(*x) for x in result_mappings)
        self.reduction_factors = tuple(reduction_factors)
        self.need_replication_factors = tuple(need_replication_factors)
        self.permutation_factors = tuple(permutation_factors)
        self.factor_sizes = factor_sizes
        self._check()

    def _special(self) -> Mapping[str, tuple[str, ...]]:
        return {
            "reduction_factors": self.reduction_factors,
            "need_replication_factors": self.need_replication_factors,
            "permutation_factors": self.permutation_factors,
        }

    def _check(self) -> None:
        entries = [entry for x in (*self.operand_mappings, *self.result_mappings) for entry in x]
        whole = {entry for entry in entries if not isinstance(entry, CompoundFactor)}
        parts = {factor for entry in entries if isinstance(entry, CompoundFactor) for factor in entry}
        for name in self.factor_sizes:
            if name not in parts:
                raise ArgumentError(f"SdyShardingRule: a size is given for {name!r}, which is in no compound factor.")
            if name in whole:
                raise ArgumentError(
                    f"SdyShardingRule: the factor {name!r} has the size of its dimension; leave out {name}="
                    f"{self.factor_sizes[name]}."
                )
        for name in sorted(parts - whole - self.factor_sizes.keys()):
            raise ArgumentError(f"SdyShardingRule: {name!r} is in compound factors alone; pass its size as {name}=.")
        seen: dict[str, str] = {}
        for kind, names in self._special().items():
            for name in names:
                if name not in whole | parts:
                    raise ArgumentError(f"SdyShardingRule: {kind} has {name!r}, which is no factor of the rule.")
                if name in seen:
                    raise ArgumentError(f"SdyShardingRule: {name!r} is in {seen[name]}, and again in {kind}.")
                seen[name] = kind

    def __repr__(self) -> str:
        special = "".join(f" {kind}={names}" for kind, names in self._special().items() if names)
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes}{special})"


def factors_of_rule(rule: SdyShardingRule, operands: Sequence[Shape], results: Sequence[Shape]) -> Factors:
    """The rule for arrays of these shapes.

    Raises:
        ArgumentError: it is for another number of arrays.
        ShapeError: an array has another rank, or a size that is not the product of its factors.
    """
    sides = (("operands", rule.operand_mappings, operands), ("results", rule.result_mappings, results))
    ranks: dict[str, int] = {}
    arrays: list[tuple[str, list[Any], Shape]] = []
    for side, mappings, shapes in sides:
        if len(mappings) != len(shapes):
            raise ArgumentError(
                f"custom_partitioning: the sharding rule has {len(mappings)} {side}, but the function has "
                f"{len(shapes)}; write the factors of each array."
            )
        for k, (mapping, shape) in enumerate(zip(mappings, shapes, strict=True)):
            what = f"number {k} of the {side}"
            arrays.append((what, _with_rank(what, mapping, shape, ranks), shape))
    sizes = dict(rule.factor_sizes)
    for _, entries, shape in arrays:
        sizes.update((e, n) for e, n in zip(entries, shape.dimensions, strict=True) if isinstance(e, str))
    for what, entries, shape in arrays:
        for entry, n in zip(entries, shape.dimensions, strict=True):
            if isinstance(entry, CompoundFactor) and math.prod(sizes[f] for f in entry) != n:
                raise ShapeError(
                    f"custom_partitioning: {what}, {shape}, has a dimension of size {n}, but its factors "
                    f"{tuple(entry)} have the sizes {tuple(sizes[f] for f in entry)}."
                )
    numbers = {name: k for k, name in enumerate(sizes)}

    def dimensions(entries: Sequence[Any]) -> Dimensions:
        return tuple(numbers[e[0] if isinstance(e, CompoundFactor) else e] for e in entries)

    found = [dimensions(entries) for _, entries, _ in arrays]
    last = (*rule.permutation_factors, *rule.need_replication_factors)
    return Factors(
        tuple(found[: len(operands)]),
        tuple(found[len(operands) :]),
        reductions=tuple((numbers[name], "add") for name in rule.reduction_factors),
        communicating=frozenset(numbers[name] for name in last),
        sizes=tuple((numbers[name], n) for name, n in rule.factor_sizes.items()),
    )


def _with_rank(what: str, mapping: ArrayMapping, shape: Shape, ranks: dict[str, int]) -> list[Any]:
    """The factors of the dimensions of an array, with those for which `BATCHING` stands."""
    entries = list(mapping)
    if entries and _is_batch(entries[0]):
        group, rank = entries[0], shape.rank - (len(entries) - 1)
        if ranks.setdefault(group, rank) != rank and rank >= 0:
            raise ShapeError(
                f"custom_partitioning: the ellipsis of the sharding rule stands for {ranks[group]} leading dimensions, "
                f"but for {rank} of {what}, {shape}; number ellipses that differ."
            )
        entries[:1] = [f"{group}/{k}" for k in range(rank)]
    if len(entries) != shape.rank:
        raise ShapeError(
            f"custom_partitioning: the sharding rule has {len(entries)} dimensions for {what}, which is {shape}."
        )
    return entries


def read_rule(text: str, **keywords: Any) -> SdyShardingRule:
    """A rule from its text, such as "... i j, j k -> ... i k": the factors of each array, with spaces between them;
    those of a compound factor in parentheses.

    Args:
        text: the rule.
        **keywords: see `SdyShardingRule`.

    Raises:
        ArgumentError: text that is no rule.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"custom_partitioning: a sharding rule is text or an SdyShardingRule, but got {text!r}.")
    sides = text.split("->")
    if len(sides) != 2:
        raise ArgumentError(
            f"custom_partitioning: a sharding rule has the factors of operands, '->', and those of results, but got "
            f"{text!r}."
        )
    operands, results = ([tuple(x) for x in _read_arrays(side, text)] for side in sides)
    return SdyShardingRule(tuple(operands), tuple(results), **keywords)


def _read_arrays(side: str, rule: str) -> list[list[Any]]:
    arrays: list[list[Any]] = [[]]
    compound: list[str] | None = None
    for token in _tokens(side, rule):
        if token in ("(", ")") and (token == "(") != (compound is None):
            raise ArgumentError(f"custom_partitioning: parentheses do not match in the sharding rule {rule!r}.")
        if token == "(":
            compound = []
        elif token == ")":
            arrays[-1].append(CompoundFactor(*compound or ()))
            compound = None
        elif compound is not None:
            compound.append(token)
        elif token == ",":
            arrays.append([])
        else:
            arrays[-1].append(BATCHING + token[3:] if token.startswith("...") else token)
    if compound is not None:
        raise ArgumentError(f"custom_partitioning: parentheses do not match in the sharding rule {rule!r}.")
    return arrays


def _tokens(side: str, rule: str) -> Iterator[str]:
    position, end = 0, len(side.rstrip())
    while position < end:
        found = _TOKEN.match(side, position)
        if found is None:
            raise ArgumentError(
                f"custom_partitioning: {side[position:].strip()!r} begins with no factor in the sharding rule {rule!r}."
            )
        yield found[1]
        position = found.end()
