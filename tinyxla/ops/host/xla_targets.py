"""The functions that programs of XLA's CPU backend call by name: LAPACK's, and a few of the compiler's own.

They are found when no function of that name has been registered. Matrices are read and written as a whole here, so what
the text says of layouts and of memory that is shared does not matter.

Source: the names and their attributes are those in the HLO text of programs for CPU; "LAPACK Users' Guide" for the
functions.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tinyxla.ops import sorting
from tinyxla.ops.host.custom_call import CustomCall, Target, known_targets, results_of
from tinyxla.ops.linalg import lapack
from tinyxla.ops.op import Array
from tinyxla.shapes import Shape, TupleShape


def _lapack(*operands: Array, attributes: CustomCall) -> Any:
    """A routine of LAPACK, with the letters that it takes for what to do, from `{uplo = 76 : ui8}`."""
    name = lapack.routine_of(attributes.custom_call_target)
    assert name is not None, "it is registered for these"
    found = {key: chr(int(code)) for key, code in re.findall(r"(\w+) = (\d{1,3}) : ui8", attributes.backend_config)}
    options = tuple(found[key] for key in lapack.ROUTINES[name].options)
    results = lapack.evaluate(*operands, routine=name, options=options)
    if not isinstance(attributes.shape, TupleShape):
        return results[0]
    if "mode" in found and options == ("N",):  # singular vectors that are not computed have any shape
        shapes = [results_of(attributes.shape)[k] for k in (2, 3)]
        return *results[:2], *(np.zeros(s.dimensions, s.dtype) for s in shapes), results[4]
    return results


def _top_k(x: Array, attributes: CustomCall) -> Any:
    assert isinstance(attributes.shape, TupleShape), "it gives values and indices"
    count: int = attributes.shape.elements[0].dimensions[-1]  # pyright: ignore[reportAttributeAccessIssue]
    return sorting.topk.evaluate(x, k=count, largest=True)


def _same(x: Array, attributes: CustomCall) -> Any:
    return x


def _memory(attributes: CustomCall) -> Any:
    """Elements are arbitrary: who asks for them writes before reading."""
    assert isinstance(attributes.shape, Shape), "it gives one array"
    return np.empty(attributes.shape.dimensions, attributes.shape.dtype)


known_targets.update(dict.fromkeys(lapack.TARGETS, Target(_lapack)))
known_targets["TopK"] = Target(_top_k)
known_targets["AllocateBuffer"] = Target(_memory)
for _name in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"):
    known_targets[_name] = Target(_same)
