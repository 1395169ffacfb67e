"""XLA's builder interface: graphs of operations made one by one, under the names of the XLA documents.

>>> import numpy as np
>>> from tinyxla.xla import Add, F32, Mul, Parameter, ShapeUtil, XlaBuilder
>>> builder = XlaBuilder("axpy")
>>> shape = ShapeUtil.MakeShape(F32, [3])
>>> a = Parameter(builder, 0, ShapeUtil.MakeShape(F32, []), "a")
>>> x, y = (Parameter(builder, number, shape) for number in (1, 2))
>>> axpy = builder.Build(Add(Mul(a, x), y))
>>> axpy(2.0, np.ones(3, np.float32), np.zeros(3, np.float32))
Array([2., 2., 2.], dtype=float32)

The functions take and give `XlaOp`s, lists of them where the documents say a sequence, and have the documents' argument
names and order; names that only older pages have are understood too. The builder may be the first argument of each, and
each is a method of builders: `Add(x, y)`, `Add(builder, x, y)` and `builder.Add(x, y)` are the same.
"""

from tinyxla.ops.numerics.accuracy import ResultAccuracy as ResultAccuracy
from tinyxla.shapes import Layout as Layout, PaddingValue as PaddingValue, Shape as Shape, TupleShape as TupleShape
from tinyxla.xla.builder import XlaBuilder as XlaBuilder, XlaOp as XlaOp
from tinyxla.xla.client import (
    CreateChannelHandle as CreateChannelHandle,
    CreateDeviceToHostChannelHandle as CreateDeviceToHostChannelHandle,
    CreateHostToDeviceChannelHandle as CreateHostToDeviceChannelHandle,
    InfeedSource as InfeedSource,
    clear_transfers as clear_transfers,
    infeed_source as infeed_source,
    transfer_from_channel as transfer_from_channel,
    transfer_from_outfeed as transfer_from_outfeed,
    transfer_to_channel as transfer_to_channel,
    transfer_to_infeed as transfer_to_infeed,
)
from tinyxla.xla.collectives import (
    AllGather as AllGather,
    AllReduce as AllReduce,
    AllToAll as AllToAll,
    AllToAllTuple as AllToAllTuple,
    CollectiveBroadcast as CollectiveBroadcast,
    CollectivePermute as CollectivePermute,
    CrossReplicaSum as CrossReplicaSum,
    PartitionID as PartitionID,
    PartitionId as PartitionId,
    RaggedAllToAll as RaggedAllToAll,
    ReduceScatter as ReduceScatter,
    ReplicaId as ReplicaId,
)
from tinyxla.xla.computation import (
    ProgramShape as ProgramShape,
    XlaComputation as XlaComputation,
    execute_parallel as execute_parallel,
)
from tinyxla.xla.contraction import (
    Conv as Conv,
    ConvGeneral as ConvGeneral,
    ConvGeneralDilated as ConvGeneralDilated,
    ConvWithGeneralDimensions as ConvWithGeneralDimensions,
    ConvWithGeneralPadding as ConvWithGeneralPadding,
    Dot as Dot,
    DotGeneral as DotGeneral,
    RaggedDot as RaggedDot,
    ScaledDot as ScaledDot,
)
from tinyxla.xla.control_flow import (
    AfterAll as AfterAll,
    Call as Call,
    CompositeCall as CompositeCall,
    Conditional as Conditional,
    CreateToken as CreateToken,
    CustomCall as CustomCall,
    Map as Map,
    OptimizationBarrier as OptimizationBarrier,
    While as While,
)
from tinyxla.xla.dimension_numbers import (
    ChannelHandle as ChannelHandle,
    ChannelType as ChannelType,
    ComparisonDirection as ComparisonDirection,
    ConvolutionDimensionNumbers as ConvolutionDimensionNumbers,
    DotDimensionNumbers as DotDimensionNumbers,
    FftType as FftType,
    GatherDimensionNumbers as GatherDimensionNumbers,
    Padding as Padding,
    PaddingConfig as PaddingConfig,
    PaddingConfigDimension as PaddingConfigDimension,
    PrecisionConfig as PrecisionConfig,
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    RandomAlgorithm as RandomAlgorithm,
    ReplicaGroup as ReplicaGroup,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    TriangularSolveOptions as TriangularSolveOptions,
    make_padding_config as make_padding_config,
)
from tinyxla.xla.elementwise import (
    Abs as Abs,
    Add as Add,
    And as And,
    Atan2 as Atan2,
    BitcastConvertType as BitcastConvertType,
    Cbrt as Cbrt,
    Ceil as Ceil,
    Clamp as Clamp,
    Clz as Clz,
    Compare as Compare,
    Complex as Complex,
    Conj as Conj,
    ConvertElementType as ConvertElementType,
    Cos as Cos,
    Cosh as Cosh,
    Div as Div,
    Eq as Eq,
    EqTotalOrder as EqTotalOrder,
    Erf as Erf,
    Exp as Exp,
    Expm1 as Expm1,
    Floor as Floor,
    Ge as Ge,
    GeTotalOrder as GeTotalOrder,
    Gt as Gt,
    GtTotalOrder as GtTotalOrder,
    Imag as Imag,
    IsFinite as IsFinite,
    Le as Le,
    LeTotalOrder as LeTotalOrder,
    Log as Log,
    Log1p as Log1p,
    LogicalAnd as LogicalAnd,
    LogicalNot as LogicalNot,
    LogicalOr as LogicalOr,
    Logistic as Logistic,
    Lt as Lt,
    LtTotalOrder as LtTotalOrder,
    Max as Max,
    Min as Min,
    Mul as Mul,
    Ne as Ne,
    Neg as Neg,
    NeTotalOrder as NeTotalOrder,
    Not as Not,
    Or as Or,
    PopulationCount as PopulationCount,
    Pow as Pow,
    Real as Real,
    ReducePrecision as ReducePrecision,
    Rem as Rem,
    Round as Round,
    RoundNearestAfz as RoundNearestAfz,
    RoundNearestEven as RoundNearestEven,
    Rsqrt as Rsqrt,
    Select as Select,
    ShiftLeft as ShiftLeft,
    ShiftRightArithmetic as ShiftRightArithmetic,
    ShiftRightLogical as ShiftRightLogical,
    Sign as Sign,
    Sin as Sin,
    Sinh as Sinh,
    Sqrt as Sqrt,
    Sub as Sub,
    Tan as Tan,
    Tanh as Tanh,
    Xor as Xor,
)
from tinyxla.xla.layouts import IndexUtil as IndexUtil, LayoutUtil as LayoutUtil, LiteralUtil as LiteralUtil
from tinyxla.xla.movement import (
    Broadcast as Broadcast,
    BroadcastInDim as BroadcastInDim,
    Collapse as Collapse,
    Concat as Concat,
    Concatenate as Concatenate,
    ConcatInDim as ConcatInDim,
    Constant as Constant,
    ConstantLiteral as ConstantLiteral,
    DynamicReshape as DynamicReshape,
    DynamicSlice as DynamicSlice,
    DynamicUpdateSlice as DynamicUpdateSlice,
    Gather as Gather,
    GetDimensionSize as GetDimensionSize,
    GetTupleElement as GetTupleElement,
    Iota as Iota,
    Pad as Pad,
    PadInDim as PadInDim,
    Parameter as Parameter,
    Reshape as Reshape,
    Rev as Rev,
    Reverse as Reverse,
    Scatter as Scatter,
    SetDimensionSize as SetDimensionSize,
    Slice as Slice,
    SliceInDim as SliceInDim,
    Transpose as Transpose,
    Tuple as Tuple,
    gather as gather,
)
from tinyxla.xla.numerics import (
    Cholesky as Cholesky,
    Fft as Fft,
    RngBernoulli as RngBernoulli,
    RngBitGenerator as RngBitGenerator,
    RngNormal as RngNormal,
    RngUniform as RngUniform,
    TriangularSolve as TriangularSolve,
)
from tinyxla.xla.reductions import (
    BatchNormGrad as BatchNormGrad,
    BatchNormInference as BatchNormInference,
    BatchNormTraining as BatchNormTraining,
    Reduce as Reduce,
    ReduceAll as ReduceAll,
    ReduceWindow as ReduceWindow,
    ReduceWindowWithGeneralPadding as ReduceWindowWithGeneralPadding,
    SelectAndScatter as SelectAndScatter,
    SelectAndScatterWithGeneralPadding as SelectAndScatterWithGeneralPadding,
    Sort as Sort,
    TopK as TopK,
)
from tinyxla.xla.shapes import PrimitiveType as PrimitiveType, ShapeUtil as ShapeUtil
from tinyxla.xla.transfers import (
    Infeed as Infeed,
    InfeedWithToken as InfeedWithToken,
    Outfeed as Outfeed,
    OutfeedWithToken as OutfeedWithToken,
    Recv as Recv,
    RecvDone as RecvDone,
    RecvFromHost as RecvFromHost,
    RecvToHost as RecvToHost,
    RecvWithToken as RecvWithToken,
    RecvWithTokens as RecvWithTokens,
    Send as Send,
    SendDone as SendDone,
    SendToHost as SendToHost,
    SendWithToken as SendWithToken,
    SendWithTokens as SendWithTokens,
)

Computation, ComputationBuilder, ComputationDataHandle = XlaComputation, XlaBuilder, XlaOp  # on the oldest page

PRED = PrimitiveType.PRED
S2 = PrimitiveType.S2
S4 = PrimitiveType.S4
S8 = PrimitiveType.S8
S16 = PrimitiveType.S16
S32 = PrimitiveType.S32
S64 = PrimitiveType.S64
U2 = PrimitiveType.U2
U4 = PrimitiveType.U4
U8 = PrimitiveType.U8
U16 = PrimitiveType.U16
U32 = PrimitiveType.U32
U64 = PrimitiveType.U64
F4E2M1FN = PrimitiveType.F4E2M1FN
F8E3M4 = PrimitiveType.F8E3M4
F8E4M3 = PrimitiveType.F8E4M3
F8E4M3B11FNUZ = PrimitiveType.F8E4M3B11FNUZ
F8E4M3FN = PrimitiveType.F8E4M3FN
F8E4M3FNUZ = PrimitiveType.F8E4M3FNUZ
F8E5M2 = PrimitiveType.F8E5M2
F8E5M2FNUZ = PrimitiveType.F8E5M2FNUZ
F8E8M0FNU = PrimitiveType.F8E8M0FNU
F16 = PrimitiveType.F16
BF16 = PrimitiveType.BF16
F32 = PrimitiveType.F32
F64 = PrimitiveType.F64
C64 = PrimitiveType.C64
C128 = PrimitiveType.C128
TOKEN = PrimitiveType.TOKEN
OPAQUE = PrimitiveType.OPAQUE
