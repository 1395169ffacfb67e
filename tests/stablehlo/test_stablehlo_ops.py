"""Every op of the registry written as StableHLO, with the samples that it gives: XLA compiles the text and gives our
values. Ops without a form are listed, and the list is exact."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.support import op_checks, xla_oracle
from tinyxla.compiler.passes.expand import expand_to_hlo
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Module
from tinyxla.ops import Sample, ops
from tinyxla.text import print_stablehlo

pytest.importorskip("jax")

EVERY = 3  # of so many samples one is compiled

LAPACK = "a factorization of matrices, which StableHLO leaves to custom calls"
WITHOUT_FORM = {
    **dict.fromkeys(("Eig", "Eigh", "LuDecomposition", "LuPivotsToPermutation", "Qr", "Solve", "Svd"), LAPACK),
    "all-to-all": "its samples have no groups, which StableHLO needs; test_replicated_against_xla has some",
    "bitcast": "of a layout, which types of StableHLO do not have",
    "callback": "calls Python",
    "copy-start": "a step of an asynchronous copy",
    "dynamic-reshape": "gives a bounded size",
    "fusion": "a compiler's",
    "mpi-collective": "a message of MPI",
    "ragged-all-to-all": "CHLO and StableHLO lack it",
    "ragged-dot": "XLA has no CHLO of it for CPUs",
    "rng": "gives other numbers with each call",
    "rng-get-and-update-state": "has a state",
    "scaled-dot": "StableHLO lacks it",
    "set-dimension-size": "gives a bounded size",
}
NOT_RUN = {
    **dict.fromkeys(
        ("add-dependency", "after-all", "infeed", "recv-done", "send-done"),
        "takes or gives tokens, which are not arrays; test_stablehlo_transfers",
    ),
    "collective-broadcast": "XLA does not implement it for CPUs",
    "custom-call": "of a target that XLA does not know",
    "select-and-scatter": "XLA ends the process on some samples; test_stablehlo_writing has gradients of windows",
}
NAMES = sorted(name for name in ops if name not in op_checks.WITHOUT_SAMPLES)


def samples_of(name: str) -> list[Sample]:
    return list(ops[name].samples(np.random.default_rng(zlib.crc32(name.encode()))))


def written(name: str, sample: Sample) -> str:
    return print_stablehlo(Module("sample", expand_to_hlo(op_checks.graph_of(ops[name], sample))))


def has_form(name: str, sample: Sample) -> bool:
    try:
        written(name, sample)
    except ArgumentError:
        return False
    return True


def test_the_list_of_ops_without_a_form_is_exact() -> None:
    assert {name for name in NAMES if not has_form(name, samples_of(name)[0])} == WITHOUT_FORM.keys()


@pytest.mark.sample(every=10)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_FORM.keys() | NOT_RUN.keys()])
def test_xla_gives_the_values_of_the_op(name: str) -> None:
    for sample in samples_of(name)[::EVERY]:
        expected = op_checks.evaluated(ops[name], sample)
        if name == "topk" and not sample.attributes.get("largest", True):
            assert not has_form(name, sample)
            continue
        if name == "cholesky" and any(np.isnan(x).any() for x in expected):
            continue  # of a matrix that has no factor, in which XLA leaves other numbers
        found = xla_oracle.run_stablehlo(written(name, sample), op_checks.flat(sample.operands))
        if name == "rng-bit-generator":  # XLA says that bits are unsigned integers, whatever the type in the text
            found = [x.view(e.dtype) for x, e in zip(found, expected, strict=True)]
        op_checks.assert_close(found, expected, f"{name} of {sample}, by XLA", scale=4.0)
