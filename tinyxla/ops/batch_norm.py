"""Batch normalization: batch-norm-training, batch-norm-inference and batch-norm-grad, which are made of other ops.

Source: sections "BatchNormTraining", "BatchNormInference" and "BatchNormGrad" of the XLA documents; S. Ioffe and
C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift", 2015. Floats
narrower than 32 bits are computed with in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.op import Array, Axes, Decomposition, Op, Sample, Value
from tinyxla.shapes import AnyShape, ElementType, Shape, TupleShape, element_type


class BatchNorm(NamedTuple):
    epsilon: float
    feature_index: int


# --- shapes -----------------------------------------------------------------------------------------------------------


def _check(name: str, operands: Sequence[AnyShape], whole: Sequence[int], feature_index: int) -> tuple[Shape, Shape]:
    """The shape of the operand and that of its features; of the operands, those in `whole` have the former."""
    shapes = [movement.array_operand(name, x) for x in operands]
    operand = shapes[0]
    if operand.element_type.kind != "float":
        raise DTypeError(f"{name}: the operand must be of a floating-point type, but got {operand}; convert it.")
    if not 0 <= feature_index < operand.rank:
        raise ShapeError(f"{name}: feature_index must be a dimension of {operand}, but got {feature_index}.")
    features = operand.with_dimensions([operand.dimensions[feature_index]])
    for k, x in enumerate(shapes):
        wanted = operand if k in whole else features
        if x.element_type is not wanted.element_type:
            raise DTypeError(f"{name}: operand {k} must have the element type of {operand}, but got {x}; convert it.")
        if x.dimensions != wanted.dimensions:
            raise ShapeError(f"{name}: operand {k} must be {wanted}, but got {x}.")
    return operand, features


def _training_shape(*operands: AnyShape, epsilon: float, feature_index: int) -> AnyShape:
    operand, features = _check("batch-norm-training", operands, (0,), feature_index)
    return TupleShape((operand, features, features))


def _inference_shape(*operands: AnyShape, epsilon: float, feature_index: int) -> AnyShape:
    return _check("batch-norm-inference", operands, (0,), feature_index)[0]


def _grad_shape(*operands: AnyShape, epsilon: float, feature_index: int) -> AnyShape:
    operand, features = _check("batch-norm-grad", operands, (0, 4), feature_index)
    return TupleShape((operand, features, features))


# --- as other ops -----------------------------------------------------------------------------------------------------


class _Features:
    """Arithmetic over the elements of each feature. The operands have `leading` mapped dimensions in front."""

    def __init__(self, x: Value, epsilon: float, feature_index: int, leading: int) -> None:
        self.kept = (*range(leading), leading + feature_index)
        self.over = tuple(d for d in range(x.ndim) if d not in self.kept)
        self.sizes = x.shape
        self.count = math.prod(x.shape[d] for d in self.over)
        self.given = element_type(x.dtype)
        self.type: ElementType = self.given if self.given.bits >= 32 else element_type("f32")
        self.epsilon = epsilon

    def wide(self, *values: Value) -> list[Value]:
        return [self._converted(x, self.given, self.type) for x in values]

    def narrow(self, *values: Value) -> tuple[Value, ...]:
        return tuple(self._converted(x, self.type, self.given) for x in values)

    @staticmethod
    def _converted(x: Value, given: ElementType, wanted: ElementType) -> Value:
        return x if wanted is given else elementwise.convert(x, new_element_type=wanted)

    def spread(self, x: Value) -> Value:
        """One value for each feature, along all its elements."""
        return movement.broadcast(x, sizes=self.sizes, dimensions=self.kept)

    def sum(self, x: Value) -> Value:
        return reduction.reduce_sum(x, self.over)

    def mean(self, x: Value) -> Value:
        total = self.sum(x)
        return elementwise.div(total, movement.full(self.count, self.type.dtype, total.shape))

    def inverse_deviation(self, variance: Value) -> Value:
        return elementwise.rsqrt(
            elementwise.add(variance, movement.full(self.epsilon, self.type.dtype, variance.shape))
        )

    def normalized(self, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
        factor = elementwise.mul(scale, self.inverse_deviation(variance))
        centered = elementwise.sub(x, self.spread(mean))
        return elementwise.add(elementwise.mul(centered, self.spread(factor)), self.spread(offset))


def _training(
    operand: Value, scale: Value, offset: Value, *, epsilon: float, feature_index: int, leading: int = 0
) -> Any:
    f = _Features(operand, epsilon, feature_index, leading)
    x, scale, offset = f.wide(operand, scale, offset)
    mean = f.mean(x)
    centered = elementwise.sub(x, f.spread(mean))
    variance = f.mean(elementwise.mul(centered, centered))
    return f.narrow(f.normalized(x, scale, offset, mean, variance), mean, variance)


def _inference(operand: Value, *others: Value, epsilon: float, feature_index: int, leading: int = 0) -> Value:
    f = _Features(operand, epsilon, feature_index, leading)
    x, scale, offset, mean, variance = f.wide(operand, *others)
    return f.narrow(f.normalized(x, scale, offset, mean, variance))[0]


def _grad(
    operand: Value,
    scale: Value,
    mean: Value,
    variance: Value,
    grad_output: Value,
    *,
    epsilon: float,
    feature_index: int,
    leading: int = 0,
) -> Any:
    f = _Features(operand, epsilon, feature_index, leading)
    x, scale, mean, variance, g = f.wide(operand, scale, mean, variance, grad_output)
    inverse = f.inverse_deviation(variance)
    standard = elementwise.mul(elementwise.sub(x, f.spread(mean)), f.spread(inverse))
    along = elementwise.mul(g, standard)
    moved = elementwise.add(f.spread(f.mean(g)), elementwise.mul(f.spread(f.mean(along)), standard))
    grad_operand = elementwise.mul(f.spread(elementwise.mul(scale, inverse)), elementwise.sub(g, moved))
    return f.narrow(grad_operand, f.sum(along), f.sum(g))


# --- as arrays --------------------------------------------------------------------------------------------------------


def _along(values: Array, x: Array, feature_index: int) -> Array:
    """One value for each feature, such that it broadcasts to x."""
    return values.reshape([-1 if d == feature_index else 1 for d in range(x.ndim)])


def _evaluator(formula: Callable[..., tuple[Array, ...]]) -> Callable[..., Any]:
    """`formula(along, over, epsilon, *operands)` on arrays of at least 32 bits: `along` spreads the values of
    features, whose elements lie along the axes `over`."""

    def evaluate(*operands: Array, epsilon: float, feature_index: int) -> Any:
        x = operands[0]
        wide = x.dtype if element_type(x.dtype).bits >= 32 else np.dtype(np.float32)
        over = tuple(d for d in range(x.ndim) if d != feature_index)
        along = partial(_along, x=x, feature_index=feature_index)
        with np.errstate(all="ignore"):
            results = formula(along, over, wide.type(epsilon), *(o.astype(wide) for o in operands))
        found = [y.astype(x.dtype) for y in results]
        return tuple(found) if len(found) > 1 else found[0]

    return evaluate


def _mean(x: Array, over: tuple[int, ...]) -> Any:
    count = math.prod(x.shape[d] for d in over)
    return x.sum(over, dtype=x.dtype) / x.dtype.type(count)


def _training_formula(
    along: Any, over: tuple[int, ...], epsilon: Any, x: Array, scale: Array, offset: Array
) -> tuple[Array, ...]:
    mean = _mean(x, over)
    variance = _mean((x - along(mean)) ** 2, over)
    return (*_inference_formula(along, over, epsilon, x, scale, offset, mean, variance), mean, variance)


def _inference_formula(
    along: Any, over: tuple[int, ...], epsilon: Any, x: Array, scale: Array, offset: Array, mean: Array, variance: Array
) -> tuple[Array, ...]:
    return (along(scale) * (x - along(mean)) / along(np.sqrt(variance + epsilon)) + along(offset),)


def _grad_formula(
    along: Any,
    over: tuple[int, ...],
    epsilon: Any,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    grad_output: Array,
) -> tuple[Array, ...]:
    deviation = np.sqrt(variance + epsilon)
    centered = x - along(mean)
    c = _mean(grad_output * centered / along(variance + epsilon), over)
    d = _mean(grad_output, over)
    grad_operand = along(scale / deviation) * (grad_output - along(d) - along(c) * centered)
    grad_scale = (grad_output * centered / along(deviation)).sum(over, dtype=x.dtype)
    return grad_operand, grad_scale, grad_output.sum(over, dtype=x.dtype)


# --- the ops ----------------------------------------------------------------------------------------------------------


def _batch(formula: Callable[..., Any]) -> Callable[..., Any]:
    def rule(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Any, Any]:
        result = formula(*movement.in_front(operands, axes, size), **attributes, leading=1)
        return result, (0,) * len(result) if isinstance(result, tuple) else 0

    return rule


def _samples(whole: Sequence[int], count: int, variance: int | None) -> Callable[..., Iterator[Sample]]:
    """Of `count` operands those in `whole` have the shape of the first; the one at `variance` is positive."""

    def samples(random: np.random.Generator) -> Iterator[Sample]:
        for dtype, shape, feature_index, epsilon in (
            (np.float32, (3, 2), 1, 0.125),
            (np.float64, (2, 2, 3), 0, 0.25),
            (np.float32, (2, 2, 1, 2), 2, 0.5),
            (np.float32, (3,), 0, 0.5),
            (np.float32, (4, 0), 1, 0.5),
            (element_type("bf16").dtype, (4, 2), 1, 0.25),
        ):
            operands = [
                elementwise.sample_array(
                    random, dtype, shape if k in whole else (shape[feature_index],), 0.5 if k == variance else -1, 2
                )
                for k in range(count)
            ]
            yield Sample(tuple(operands), {"epsilon": epsilon, "feature_index": feature_index})

    return samples


batch_norm_training = Op(
    "batch-norm-training",
    attributes=BatchNorm,
    shape=_training_shape,
    evaluate=_evaluator(_training_formula),
    derivative=Decomposition(_training),
    batch=_batch(_training),
    samples=_samples((0,), 3, None),
    expand=_training,
)
batch_norm_inference = Op(
    "batch-norm-inference",
    attributes=BatchNorm,
    shape=_inference_shape,
    evaluate=_evaluator(_inference_formula),
    derivative=Decomposition(_inference),
    batch=_batch(_inference),
    samples=_samples((0,), 5, 4),
    expand=_inference,
)
batch_norm_grad = Op(
    "batch-norm-grad",
    attributes=BatchNorm,
    shape=_grad_shape,
    evaluate=_evaluator(_grad_formula),
    derivative=Decomposition(_grad),
    batch=_batch(_grad),
    samples=_samples((0, 4), 5, 3),
    expand=_grad,
)
