"""The messages and enumerations of XLA's builder interface: plain objects, whose repeated fields are lists.

`message.add_field(x)` appends to a repeated field, as in the documents' examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

Ints = list[int]


class _Message:
    def __getattr__(self, name: str) -> Callable[[Any], None]:
        repeated = self.__dict__.get(name.removeprefix("add_"))
        if not name.startswith("add_") or not isinstance(repeated, list):
            raise AttributeError(f"{type(self).__name__} has no field {name!r}", name=name, obj=self)
        return repeated.append  # pyright: ignore[reportUnknownVariableType]


@dataclass
class DotDimensionNumbers(_Message):
    """Which dimensions of the operands of a product are summed over, and which are common to both and kept."""

    lhs_contracting_dimensions: Ints = field(default_factory=list[int])
    rhs_contracting_dimensions: Ints = field(default_factory=list[int])
    lhs_batch_dimensions: Ints = field(default_factory=list[int])
    rhs_batch_dimensions: Ints = field(default_factory=list[int])


@dataclass
class RaggedDotDimensionNumbers(_Message):
    """Of a product with a dimension in groups: the ragged dimension of the left operand, and that of the right one that
    runs over groups."""

    dot_dimension_numbers: DotDimensionNumbers = field(default_factory=DotDimensionNumbers)
    lhs_ragged_dimensions: Ints = field(default_factory=list[int])
    rhs_group_dimensions: Ints = field(default_factory=list[int])


@dataclass
class ConvolutionDimensionNumbers(_Message):
    """What each dimension of the input, the kernel and the output of a convolution is."""

    input_batch_dimension: int = 0
    input_feature_dimension: int = 0
    input_spatial_dimensions: Ints = field(default_factory=list[int])
    kernel_output_feature_dimension: int = 0
    kernel_input_feature_dimension: int = 0
    kernel_spatial_dimensions: Ints = field(default_factory=list[int])
    output_batch_dimension: int = 0
    output_feature_dimension: int = 0
    output_spatial_dimensions: Ints = field(default_factory=list[int])


@dataclass
class GatherDimensionNumbers(_Message):
    """How index vectors and slices of a gather meet the dimensions of its operand and result."""

    offset_dims: Ints = field(default_factory=list[int])
    collapsed_slice_dims: Ints = field(default_factory=list[int])
    start_index_map: Ints = field(default_factory=list[int])
    index_vector_dim: int = 0
    operand_batching_dims: Ints = field(default_factory=list[int])
    start_indices_batching_dims: Ints = field(default_factory=list[int])


@dataclass
class ScatterDimensionNumbers(_Message):
    """How index vectors and updates of a scatter meet the dimensions of its operand."""

    update_window_dims: Ints = field(default_factory=list[int])
    inserted_window_dims: Ints = field(default_factory=list[int])
    scatter_dims_to_operand_dims: Ints = field(default_factory=list[int])
    index_vector_dim: int = 0
    input_batching_dims: Ints = field(default_factory=list[int])
    scatter_indices_batching_dims: Ints = field(default_factory=list[int])


@dataclass
class ReplicaGroup(_Message):
    """Replicas that take part in a collective operation together, in the order in which they count."""

    replica_ids: Ints = field(default_factory=list[int])


class ChannelType(IntEnum):
    """Which two ends a channel has."""

    DEVICE_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_DEVICE = 3


class ChannelHandle(NamedTuple):
    """A channel: its number, which both ends give, and its type."""

    handle: int
    type: ChannelType = ChannelType.DEVICE_TO_DEVICE


@dataclass
class PaddingConfigDimension:
    """Padding of one dimension: at its edges (negative: elements are removed), and between neighbours."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass
class PaddingConfig(_Message):
    """Padding of all dimensions."""

    dimensions: list[PaddingConfigDimension] = field(default_factory=list[PaddingConfigDimension])


def make_padding_config(dimensions: Any) -> PaddingConfig:
    """A `PaddingConfig` of (low, high, interior) triples."""
    return PaddingConfig([PaddingConfigDimension(*triple) for triple in dimensions])


@dataclass
class PrecisionConfig(_Message):
    """The precision asked for each operand of a product. A CPU multiplies in the operands' own, the highest."""

    class Precision(StrEnum):
        """Levels of precision."""

        DEFAULT = "default"
        HIGH = "high"
        HIGHEST = "highest"

    operand_precision: list[Precision] = field(default_factory=list[Precision])


class Padding(Enum):
    """Shorthands for the padding of windows: as many windows as elements (over the stride), or no padding."""

    kSame = "SAME"
    kValid = "VALID"


class FftType(StrEnum):
    """Kinds of Fourier transforms."""

    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


class RandomAlgorithm(StrEnum):
    """Generators of random bits. Their values, the documents' names, may be given too."""

    RNG_DEFAULT = "rng_default"
    RNG_THREE_FRY = "rng_three_fry"
    RNG_PHILOX = "rng_philox"


class ComparisonDirection(StrEnum):
    """What a comparison asks."""

    kEq = "EQ"
    kNe = "NE"
    kGe = "GE"
    kGt = "GT"
    kLe = "LE"
    kLt = "LT"


class TriangularSolveOptions:
    """Options of TriangularSolve."""

    class Transpose(StrEnum):
        """How the matrix is used: as it is, transposed, or transposed and conjugated."""

        NO_TRANSPOSE = "NO_TRANSPOSE"
        TRANSPOSE = "TRANSPOSE"
        ADJOINT = "ADJOINT"
