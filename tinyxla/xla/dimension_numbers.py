"""The messages and enumerations of XLA's builder interface: plain objects, whose repeated fields are lists.

`message.add_field(x)` appends to a repeated field, as in the documents' examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

from tinyxla.numpy.arguments import integers_of, several_of

Ints = list[int]


class _Message:
    def __getattr__(self, name: str) -> Callable[[Any], None]:
        repeated = self.__dict__.get(name.removeprefix("add_"))
        if not name.startswith("add_") or not isinstance(repeated, list):
            raise AttributeError(f"{type(self).__name__} has no field {name!r}", name=name, obj=self)
        return repeated.append


@dataclass
class DotDimensionNumbers(_Message):
    """Which dimensions of the operands of a product are summed over, and which are common to both and kept.

    >>> from tinyxla.xla import DotDimensionNumbers
    >>> numbers = DotDimensionNumbers()
    >>> numbers.add_lhs_contracting_dimensions(1)
    >>> numbers.add_rhs_contracting_dimensions(0)
    >>> numbers == DotDimensionNumbers([1], [0])
    True
    """

    lhs_contracting_dimensions: Ints = field(default_factory=list[int])
    rhs_contracting_dimensions: Ints = field(default_factory=list[int])
    lhs_batch_dimensions: Ints = field(default_factory=list[int])
    rhs_batch_dimensions: Ints = field(default_factory=list[int])


@dataclass
class RaggedDotDimensionNumbers(_Message):
    """Of a product with a dimension in groups: the ragged dimension of the left operand, and that of the right one that
    runs over groups.

    >>> from tinyxla.xla import DotDimensionNumbers, RaggedDotDimensionNumbers
    >>> numbers = RaggedDotDimensionNumbers(DotDimensionNumbers([1], [1]), [0], rhs_group_dimensions=[0])
    >>> numbers.lhs_ragged_dimensions
    [0]
    """

    dot_dimension_numbers: DotDimensionNumbers = field(default_factory=DotDimensionNumbers)
    lhs_ragged_dimensions: Ints = field(default_factory=list[int])
    rhs_group_dimensions: Ints = field(default_factory=list[int])


@dataclass
class ConvolutionDimensionNumbers(_Message):
    """What each dimension of the input, the kernel and the output of a convolution is.

    >>> from tinyxla.xla import ConvolutionDimensionNumbers
    >>> numbers = ConvolutionDimensionNumbers(0, 3, [1, 2], 3, 2, [0, 1], 0, 3, [1, 2])  # NHWC, HWIO -> NHWC
    >>> numbers.kernel_output_feature_dimension
    3
    """

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
    """How index vectors and slices of a gather meet the dimensions of its operand and result.

    >>> from tinyxla.xla import GatherDimensionNumbers
    >>> rows = GatherDimensionNumbers([1], [0], [0], index_vector_dim=1)  # of a matrix, for a vector of row numbers
    >>> rows.collapsed_slice_dims
    [0]
    """

    offset_dims: Ints = field(default_factory=list[int])
    collapsed_slice_dims: Ints = field(default_factory=list[int])
    start_index_map: Ints = field(default_factory=list[int])
    index_vector_dim: int = 0
    operand_batching_dims: Ints = field(default_factory=list[int])
    start_indices_batching_dims: Ints = field(default_factory=list[int])


@dataclass
class ScatterDimensionNumbers(_Message):
    """How index vectors and updates of a scatter meet the dimensions of its operand.

    >>> from tinyxla.xla import ScatterDimensionNumbers
    >>> rows = ScatterDimensionNumbers([1], [0], [0], index_vector_dim=1)  # of a matrix, for a vector of row numbers
    >>> rows.inserted_window_dims
    [0]
    """

    update_window_dims: Ints = field(default_factory=list[int])
    inserted_window_dims: Ints = field(default_factory=list[int])
    scatter_dims_to_operand_dims: Ints = field(default_factory=list[int])
    index_vector_dim: int = 0
    input_batching_dims: Ints = field(default_factory=list[int])
    scatter_indices_batching_dims: Ints = field(default_factory=list[int])


@dataclass
class ReplicaGroup(_Message):
    """Replicas that take part in a collective operation together, in the order in which they count.

    >>> from tinyxla.xla import ReplicaGroup
    >>> group = ReplicaGroup([0])
    >>> group.add_replica_ids(2)
    >>> group
    ReplicaGroup(replica_ids=[0, 2])
    """

    replica_ids: Ints = field(default_factory=list[int])


class ChannelType(IntEnum):
    """Which two ends a channel has.

    >>> from tinyxla.xla import ChannelHandle, ChannelType, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Send(b.Constant(1.0), ChannelHandle(3, ChannelType.DEVICE_TO_HOST))
    Traceback (most recent call last):
        ...
    tinyxla.errors.ArgumentError: Send: handle must be a channel of type DEVICE_TO_DEVICE, but is ...
    """

    DEVICE_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_DEVICE = 3


class ChannelHandle(NamedTuple):
    """A channel: its number, which both ends give, and its type.

    >>> from tinyxla.xla import ChannelHandle
    >>> ChannelHandle(3)
    ChannelHandle(handle=3, type=<ChannelType.DEVICE_TO_DEVICE: 1>)
    """

    handle: int
    type: ChannelType = ChannelType.DEVICE_TO_DEVICE


@dataclass
class PaddingConfigDimension:
    """Padding of one dimension: at its edges (negative: elements are removed), and between neighbours.

    >>> import numpy as np
    >>> from tinyxla.xla import PaddingConfig, PaddingConfigDimension, XlaBuilder
    >>> b = XlaBuilder()
    >>> config = PaddingConfig([PaddingConfigDimension(edge_padding_high=1, interior_padding=2)])
    >>> b.Build(b.Pad(b.Constant(np.int32([1, 2])), b.Constant(0), config))()
    Array([1, 0, 0, 2, 0], dtype=int32)
    """

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass
class PaddingConfig(_Message):
    """Padding of all dimensions.

    >>> from tinyxla.xla import PaddingConfig, PaddingConfigDimension
    >>> config = PaddingConfig()
    >>> config.add_dimensions(PaddingConfigDimension(1, 2))
    >>> len(config.dimensions)
    1
    """

    dimensions: list[PaddingConfigDimension] = field(default_factory=list[PaddingConfigDimension])


def make_padding_config(dimensions: Any) -> PaddingConfig:
    """A `PaddingConfig` of (low, high, interior) triples.

    Args:
        dimensions: triples (low, high, interior).

    Returns:
        A `PaddingConfig`.

    Raises:
        ArgumentError: what are no triples of integers.

    >>> from tinyxla.xla import make_padding_config
    >>> make_padding_config([(1, 2, 0)]).dimensions
    [PaddingConfigDimension(edge_padding_low=1, edge_padding_high=2, interior_padding=0)]
    """
    what = "xla.make_padding_config"
    triples = (integers_of(what, "each of dimensions", x, 3) for x in several_of(what, "dimensions", dimensions))
    return PaddingConfig([PaddingConfigDimension(*triple) for triple in triples])


@dataclass
class PrecisionConfig(_Message):
    """The precision asked for each operand of a product. A CPU multiplies in the operands' own, the highest.

    >>> import numpy as np
    >>> from tinyxla.xla import PrecisionConfig, XlaBuilder
    >>> b = XlaBuilder()
    >>> x, highest = b.Constant(np.float32([1, 2])), PrecisionConfig.Precision.HIGHEST
    >>> b.Build(b.Dot(x, x, PrecisionConfig([highest, highest])))()
    Array(5., dtype=float32)
    """

    class Precision(StrEnum):
        """Levels of precision."""

        DEFAULT = "default"
        HIGH = "high"
        HIGHEST = "highest"

    operand_precision: list[Precision] = field(default_factory=list[Precision])


class Padding(Enum):
    """Shorthands for the padding of windows: as many windows as elements (over the stride), or no padding.

    >>> import numpy as np
    >>> from tinyxla.xla import Padding, XlaBuilder
    >>> b = XlaBuilder()
    >>> images, kernel = b.Constant(np.ones((1, 1, 9), np.float32)), b.Constant(np.ones((1, 1, 3), np.float32))
    >>> [b.Conv(images, kernel, [2], padding) for padding in Padding]
    [<XlaOp f32[1,1,5] of computation>, <XlaOp f32[1,1,4] of computation>]
    """

    kSame = "SAME"
    kValid = "VALID"


class FftType(StrEnum):
    """Kinds of Fourier transforms.

    >>> import numpy as np
    >>> from tinyxla.xla import FftType, XlaBuilder
    >>> b = XlaBuilder()
    >>> half = b.Fft(b.Constant(np.ones(8, np.float32)), FftType.RFFT, [8])
    >>> half, b.Fft(half, FftType.IRFFT, [8])
    (<XlaOp c64[5] of computation>, <XlaOp f32[8] of computation>)
    """

    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


class RandomAlgorithm(StrEnum):
    """Generators of random bits. Their values, the documents' names, may be given too.

    >>> import numpy as np
    >>> from tinyxla.xla import U32, RandomAlgorithm, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> state = b.Constant(np.zeros(2, np.uint64))
    >>> b.RngBitGenerator(RandomAlgorithm.RNG_DEFAULT, state, ShapeUtil.MakeShape(U32, [3]))
    <XlaOp (u64[2], u32[3]) of computation>
    """

    RNG_DEFAULT = "rng_default"
    RNG_THREE_FRY = "rng_three_fry"
    RNG_PHILOX = "rng_philox"


class ComparisonDirection(StrEnum):
    """What a comparison asks.

    >>> from tinyxla.xla import ComparisonDirection, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(b.Compare(b.Constant(1), b.Constant(1), ComparisonDirection.kGe))()
    Array(True, dtype=bool)
    """

    kEq = "EQ"
    kNe = "NE"
    kGe = "GE"
    kGt = "GT"
    kLe = "LE"
    kLt = "LT"


class TriangularSolveOptions:
    """Options of TriangularSolve.

    >>> from tinyxla.xla import TriangularSolveOptions
    >>> [str(x) for x in TriangularSolveOptions.Transpose]
    ['NO_TRANSPOSE', 'TRANSPOSE', 'ADJOINT']
    """

    class Transpose(StrEnum):
        """How the matrix is used: as it is, transposed, or transposed and conjugated."""

        NO_TRANSPOSE = "NO_TRANSPOSE"
        TRANSPOSE = "TRANSPOSE"
        ADJOINT = "ADJOINT"
