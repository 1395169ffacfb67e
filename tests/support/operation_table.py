"""The table of docs/operations.md: every operation of the XLA documents and what was checked of it.

`python -m tests.support.operation_table` runs the checks of every op on all of its samples and writes the page. A cell
says on how many samples the check passed, or why there is nothing to check; a check that fails ends the command.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tinyxla
from tests.ops import test_preconditions
from tests.support import ROOT, jax_oracle, op_checks
from tests.text import test_hlo_parser
from tinyxla import xla
from tinyxla.backends import compile_module
from tinyxla.hlo import Module
from tinyxla.ops import Op, Sample, elementwise, ops
from tinyxla.ops.op import NotDifferentiable, Zero
from tinyxla.text.hlo_text import OPCODES

PAGE = ROOT / "docs" / "operations.md"
COLUMNS = ("operation", "in the graph", "refused", "value", "compiled", "oracle", "jvp", "vjp", "vmap", "text")
COMPILED = COLUMNS.index("compiled")

# The documents' names, by section of the page, and the op of the graph that each one makes (the last of several).
SECTIONS: dict[str, dict[str, str]] = {
    "Element-wise, unary": {
        "Abs": "abs",
        "Cbrt": "cbrt",
        "Ceil": "ceil",
        "Clz": "count-leading-zeros",
        "Cos": "cosine",
        "Cosh": "cosh",
        "Erf": "erf",
        "Exp": "exponential",
        "Expm1": "exponential-minus-one",
        "Floor": "floor",
        "Imag": "imag",
        "IsFinite": "is-finite",
        "Log": "log",
        "Log1p": "log-plus-one",
        "LogicalNot": "not",
        "Logistic": "logistic",
        "Neg": "negate",
        "Not": "not",
        "PopulationCount": "popcnt",
        "Real": "real",
        "Round": "round-nearest-afz",
        "RoundNearestAfz": "round-nearest-afz",
        "RoundNearestEven": "round-nearest-even",
        "Rsqrt": "rsqrt",
        "Sign": "sign",
        "Sin": "sine",
        "Sinh": "sinh",
        "Sqrt": "sqrt",
        "Tan": "tan",
        "Tanh": "tanh",
        "ReducePrecision": "reduce-precision",
        "ConvertElementType": "convert",
        "BitcastConvertType": "bitcast-convert",
    },
    "Element-wise, binary and ternary": {
        "Add": "add",
        "Sub": "subtract",
        "Mul": "multiply",
        "Div": "divide",
        "Rem": "remainder",
        "Max": "maximum",
        "Min": "minimum",
        "Pow": "power",
        "Atan2": "atan2",
        "Complex": "complex",
        "Conj": "complex",
        "And": "and",
        "Or": "or",
        "Xor": "xor",
        "LogicalAnd": "and",
        "LogicalOr": "or",
        "ShiftLeft": "shift-left",
        "ShiftRightArithmetic": "shift-right-arithmetic",
        "ShiftRightLogical": "shift-right-logical",
        **dict.fromkeys(("Eq", "Ne", "Ge", "Gt", "Le", "Lt", "Compare"), "compare"),
        **dict.fromkeys(("EqTotalOrder", "NeTotalOrder", "GeTotalOrder"), "compare"),
        **dict.fromkeys(("GtTotalOrder", "LeTotalOrder", "LtTotalOrder"), "compare"),
        "Clamp": "clamp",
        "Select": "select",
    },
    "Shape and data movement": {
        "Broadcast": "broadcast",
        "BroadcastInDim": "broadcast",
        "Reshape": "reshape",
        "Collapse": "reshape",
        "Transpose": "transpose",
        "Rev": "reverse",
        "Reverse": "reverse",
        "Pad": "pad",
        "PadInDim": "pad",
        "Slice": "slice",
        "SliceInDim": "slice",
        "DynamicSlice": "dynamic-slice",
        "DynamicUpdateSlice": "dynamic-update-slice",
        "ConcatInDim": "concatenate",
        "Concatenate": "concatenate",
        "Concat": "concatenate",
        "Gather": "gather",
        "Scatter": "scatter",
        "Iota": "iota",
        "Constant": "constant",
        "ConstantLiteral": "constant",
        "Parameter": "parameter",
        "Tuple": "tuple",
        "GetTupleElement": "get-tuple-element",
        "OptimizationBarrier": "opt-barrier",
        "GetDimensionSize": "get-dimension-size",
        "SetDimensionSize": "set-dimension-size",
        "DynamicReshape": "dynamic-reshape",
    },
    "Contractions": {
        "Dot": "dot",
        "DotGeneral": "dot",
        "ScaledDot": "scaled-dot",
        "RaggedDot": "ragged-dot",
        **dict.fromkeys(("Conv", "ConvWithGeneralPadding", "ConvWithGeneralDimensions"), "convolution"),
        **dict.fromkeys(("ConvGeneral", "ConvGeneralDilated"), "convolution"),
    },
    "Reductions, windows, order": {
        "Reduce": "reduce",
        "ReduceAll": "reduce",
        "ReduceWindow": "reduce-window",
        "ReduceWindowWithGeneralPadding": "reduce-window",
        "SelectAndScatter": "select-and-scatter",
        "SelectAndScatterWithGeneralPadding": "select-and-scatter",
        "Map": "map",
        "Sort": "sort",
        "TopK": "topk",
        "BatchNormTraining": "batch-norm-training",
        "BatchNormInference": "batch-norm-inference",
        "BatchNormGrad": "batch-norm-grad",
    },
    "Linear algebra, transforms, random numbers": {
        "Cholesky": "cholesky",
        "TriangularSolve": "triangular-solve",
        "Fft": "fft",
        "RngUniform": "rng",
        "RngNormal": "rng",
        "RngBernoulli": "rng",
        "RngBitGenerator": "rng-bit-generator",
    },
    "Across replicas, and the host": {
        "AllReduce": "all-reduce",
        "CrossReplicaSum": "all-reduce",
        "AllGather": "all-gather",
        "ReduceScatter": "reduce-scatter",
        "AllToAll": "all-to-all",
        "AllToAllTuple": "all-to-all",
        "RaggedAllToAll": "ragged-all-to-all",
        "CollectiveBroadcast": "collective-broadcast",
        "CollectivePermute": "collective-permute",
        "ReplicaId": "replica-id",
        "PartitionId": "partition-id",
        "PartitionID": "partition-id",
        **dict.fromkeys(("Send", "SendWithToken", "SendWithTokens", "SendToHost"), "send"),
        "SendDone": "send-done",
        "Recv": "recv",
        **dict.fromkeys(("RecvDone", "RecvWithToken", "RecvWithTokens", "RecvFromHost", "RecvToHost"), "recv-done"),
        "Infeed": "infeed",
        "InfeedWithToken": "infeed",
        "Outfeed": "outfeed",
        "OutfeedWithToken": "outfeed",
    },
    "Control flow and calls": {
        "Call": "call",
        "CompositeCall": "call",
        "Conditional": "conditional",
        "While": "while",
        "CustomCall": "custom-call",
        "AfterAll": "after-all",
        "CreateToken": "after-all",
    },
}
# Without a function of the builder.
ONLY_IN_TEXT = (
    "add-dependency all-gather-done all-gather-start all-reduce-done all-reduce-start async-done async-start "
    "async-update bitcast collective-permute-done collective-permute-start copy copy-done copy-start domain fusion "
    "mulhi rng-get-and-update-state"
).split()
OF_THE_LIBRARY = sorted(
    "Eig Eigh LuDecomposition LuPivotsToPermutation Qr Solve Svd callback checkpoint-name lanes lapack mpi-collective "
    "pvary psum-invariant recast shard-map sharding-constraint symbolic-size threefry-2x32 while-pullback".split()
    + list(elementwise.NAMES - OPCODES)
)

INTRODUCTION = """# Operations

Written by `python -m tests.support.operation_table`, which runs every check named here and ends with an error if
one fails.

Every operation of the XLA documents, and the few others that the graph has. A number is that of samples that passed:
operands of various types, sizes and ranks (empty arrays, scalars), and attributes. A dash says why there is nothing to
check. Samples of operations between replicas are of one replica; `tests/replicas/test_collectives.py` has several, with
their derivatives and maps.

- **operation**: functions of the builder, `tinyxla.xla`; those that one operation of the graph stands for are together.
- **refused**: documented preconditions, each violated once: a typed error names operation, values and remedy.
- **value**: the shape rule, the eager call and the interpreted graph agree with the operation's definition in NumPy.
- **compiled**: the compiled program gives the same. `kernels` are loops in native code, `BLAS` a call of the matrix
  product, `host` a call of the definition in NumPy; `expanded` operations are compiled as the others they are made of;
  `no code` is what is decided at compile time.
- **oracle**: the values are those of JAX on XLA:CPU, or of what else is named; or why they are compared elsewhere or
  not at all.
- **jvp**, **vjp**: tangents against differences, cotangents against tangents, both to second order; `0` is a derivative
  that is zero wherever it exists.
- **vmap**: mapped over each axis of each subset of the operands, it is what a loop gives.
- **text**: printed as HLO text and read back, it is the same graph and gives the same values.
"""


def samples_of(name: str) -> list[Sample]:
    return list(ops[name].samples(np.random.default_rng(zlib.crc32(name.encode()))))


class Cells:
    """What the table says of one op. Where `checked`, it is put to the test."""

    def __init__(self, name: str, checked: bool) -> None:
        self.op = ops[name]
        self.checked = checked
        self.samples = samples_of(name)

    def passed(self, check: Callable[..., None], samples: list[Sample], *more: Any) -> str:
        if self.checked:
            for sample in samples:
                check(self.op, sample, *more)
        return str(len(samples))

    def refused(self) -> str:
        name = self.op.name
        violations = test_preconditions.violations_of(name)
        if self.checked:
            for row in violations:
                test_preconditions.test_shape_rule(name, row)
        return str(len(violations)) if violations else f"– {test_preconditions.TAKES_ANYTHING[name]}"

    def value(self) -> str:
        if self.op.name in op_checks.WITHOUT_SAMPLES:
            return f"– {op_checks.WITHOUT_SAMPLES[self.op.name]}"
        for check in (op_checks.check_shape, op_checks.check_eager):
            self.passed(check, self.samples)
        return self.passed(op_checks.check_graph, self.samples)

    def compiled(self) -> str:
        if self.op.name in op_checks.WITHOUT_SAMPLES:
            return f"– {op_checks.WITHOUT_SAMPLES[self.op.name]}"
        found = self.passed(lambda op, sample: op_checks.check_compiled(tinyxla.jit, op, sample), self.samples)
        return f"{found} {how_compiled(self.op, self.samples)}" if self.checked else found

    def oracle(self) -> str:
        name = self.op.name
        if name in jax_oracle.absent:
            return f"– {jax_oracle.absent[name]}"
        oracle = jax_oracle.oracle(name)
        found = self.passed(lambda op, sample: op_checks.check_against(oracle, op, sample), self.samples)
        return f"{found} {jax_oracle.elsewhere.get(name, 'JAX')}"

    def derivative(self, check: Callable[..., None]) -> str:
        if not self.samples and isinstance(self.op.derivative, NotDifferentiable):
            return f"– {self.op.derivative.reason}"
        kinds = [op_checks.derivative_kind(self.op, sample) for sample in self.samples]
        if all(isinstance(kind, Zero) for kind in kinds):
            return "0"
        reasons = sorted({kind.reason for kind in kinds if isinstance(kind, NotDifferentiable)})
        able = [x for x, kind in zip(self.samples, kinds, strict=True) if not isinstance(kind, NotDifferentiable)]
        able = [
            x for x in able if not op_checks.is_narrow(x) and any(map(op_checks.is_inexact, op_checks.flat(x.operands)))
        ]
        if not able:
            return "– " + ("; ".join(reasons) or "of integers")
        return self.passed(check, able, np.random.default_rng(0))

    def mapped(self) -> str:
        if self.op.name in op_checks.IN_ORDER:
            return "– refused: items have an order"
        samples = [sample for sample in self.samples if sample.operands]
        return self.passed(op_checks.check_batch, samples) if samples else "– no operands"

    def text(self) -> str:
        if self.op.name == "callback":
            return "printed: a text cannot hold a Python function"
        if self.op.name in ("shard-map", "sharding-constraint"):
            return "printed: a text cannot hold the devices of a mesh"
        if not self.samples:
            return "with every other" if self.op.name == "parameter" else "– in test_collectives_text"
        return self.passed(test_hlo_parser.check_round_trip, self.samples)

    def row(self, names: list[str]) -> tuple[str, ...]:
        return (
            "<br>".join(signature(name) for name in names) or f"`{self.op.name}`",
            f"`{self.op.name}`",
            self.refused(),
            self.value(),
            self.compiled(),
            self.oracle(),
            self.derivative(op_checks.check_forward),
            self.derivative(op_checks.check_reverse),
            self.mapped(),
            self.text(),
        )


def signature(name: str) -> str:
    """Of a function of the builder, with the names of its arguments but the builder itself."""
    _, *names = inspect.signature(getattr(xla, name)).parameters
    return f"`{name}({', '.join(names)})`"


def how_compiled(op: Op, samples: list[Sample]) -> str:
    """What runs it: loop nests, the BLAS, or NumPy on the host; and whether it is made of others for that."""
    ways: set[str] = set()
    for sample in samples if not op.structural else ():
        for step in compile_module(Module("sample", op_checks.graph_of(op, sample))).report().steps:
            by_blas = step.kind == "product" and not step.over
            ways.add("host" if step.kind == "host call" else "BLAS" if by_blas else "kernels")
    found = ", ".join(sorted(ways)) or "no code"
    return f"expanded: {found}" if op.expand is not None and op.name not in elementwise.NAMES else found


def sections() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """The headings, and under each the ops of the graph with the functions that make them."""
    for title, names in SECTIONS.items():
        found: dict[str, list[str]] = {}
        for name, op in names.items():
            found.setdefault(op, []).append(name)
        yield title, list(found.items())
    yield "In HLO text only", [(name, []) for name in ONLY_IN_TEXT]
    yield "What the library's own functions are made of", [(name, []) for name in OF_THE_LIBRARY]


def page(checked: bool) -> str:
    """All of it; where not `checked`, the cells are what they are if all checks pass, but for how ops are compiled."""
    parts = [INTRODUCTION]
    for title, rows in sections():
        lines = [COLUMNS, ("---",) * len(COLUMNS)]
        for name, names in rows:
            lines.append(Cells(name, checked).row(names))
            if checked:
                print(name, flush=True)
        parts.append(f"\n## {title}\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines))
    return "".join(parts)


if __name__ == "__main__":
    text = page(checked=True)
    PAGE.write_text(text, encoding="utf-8")
