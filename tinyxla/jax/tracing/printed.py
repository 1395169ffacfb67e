"""Tracers, arrays and element types as JAX prints them, in tutorials and in programs that are being traced."""

from __future__ import annotations

from typing import Any

from tinyxla.jax.jaxprs.avals import get_aval
from tinyxla.numpy.types import ScalarType
from tinyxla.partitioning.array import ShardedArray
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import GraphTracer
from tinyxla.transforms.batch import BatchTracer
from tinyxla.transforms.forward import TangentTracer
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.transforms.reverse import TapeTracer


def _of_graph(self: GraphTracer) -> str:
    known = self.owner.text_of(self.instruction) if self.owner.active else None
    return f"JitTracer({get_aval(self)})" if known is None else known


def _of_tape(self: TapeTracer) -> str:
    return f"GradTracer(primal={self.carried}, typeof(tangent)={_short(self)})"


def _of_tangent(self: TangentTracer) -> str:
    return f"JVPTracer(primal={self.carried}, tangent={self.tangent})"


def _of_batch(self: BatchTracer) -> str:
    return f"VmapTracer(aval={get_aval(self)}, batched={get_aval(self.carried)})"


def _of_keys(self: KeyArray) -> str:
    words = self.words
    if isinstance(words, BatchTracer):
        return f"VmapTracer(aval={get_aval(self)}, batched={get_aval(KeyArray(self.dtype, words.carried))})"
    if isinstance(words, ConcreteArray):
        return _key_repr(self)
    return f"JitTracer({get_aval(self)})"


_key_repr = KeyArray.__repr__


def _short(x: Array) -> str:
    aval: Any = get_aval(x)
    return aval.str_short(short_dtypes=True)


def set_printed() -> None:
    """Have these classes print as JAX's do, and tracers have the names of JAX's classes."""
    kinds: dict[Any, tuple[str, Any]] = {
        GraphTracer: ("partial_eval.DynamicJaxprTracer", _of_graph),
        TapeTracer: ("ad.LinearizeTracer", _of_tape),
        TangentTracer: ("ad.JVPTracer", _of_tangent),
        BatchTracer: ("batching.BatchTracer", _of_batch),
    }
    for kind, (name, text) in kinds.items():
        module, kind.__name__ = name.split(".")
        kind.__module__, kind.__qualname__ = f"jax._src.interpreters.{module}", kind.__name__
        kind.__repr__ = kind.__str__ = text
    KeyArray.__repr__ = KeyArray.__str__ = _of_keys
    ScalarType.__repr__ = lambda self: f"<class 'jax.numpy.{self.__name__}'>"
    for array in (ConcreteArray, ShardedArray):
        array.__module__, array.__name__, array.__qualname__ = "jaxlib._jax", "ArrayImpl", "ArrayImpl"
