"""Attributes of arrays, traces and options that JAX's interface alone has, given to this library's classes."""

from __future__ import annotations

from typing import Any

from tinyxla import numpy, tree_util
from tinyxla.api.aot import Compiled, Lowered, Traced
from tinyxla.api.derivatives import Pullback
from tinyxla.api.jit import Jitted, PlacingJitted
from tinyxla.custom_derivatives import SymbolicZero
from tinyxla.errors import AxisError, RankPromotionWarning, TinyxlaError
from tinyxla.jax import flags
from tinyxla.jax.devices import memories
from tinyxla.jax.devices.backend import get_backend
from tinyxla.jax.devices.formats import array_format, input_formats, output_formats
from tinyxla.jax.errors.filtered_tracebacks import mark_filtered_tracebacks
from tinyxla.jax.errors.rows import with_jax_words
from tinyxla.jax.jaxprs.avals import get_aval
from tinyxla.jax.jaxprs.primitives.random_primitives import record_generators
from tinyxla.jax.jaxprs.primitives.recorded_functions import numpy_functions, recorded_modulus, recorded_power
from tinyxla.jax.partitioning.hlo_shardings import hlo_sharding
from tinyxla.jax.pytrees.registry import Registry
from tinyxla.jax.random_keys.consumed_keys import consumption
from tinyxla.jax.random_keys.key_reuse import checking
from tinyxla.jax.stages.compile_events import tell_of_compiling
from tinyxla.jax.stages.stage_attributes import (
    RuntimeExecutable,
    args_info,
    cache_size,
    global_ir,
    hlo_of_device,
    in_avals,
    in_stablehlo,
    out_avals,
    traced_jaxpr,
)
from tinyxla.jax.tracing.gradient_refs import with_refs
from tinyxla.jax.tracing.printed import set_printed
from tinyxla.numpy.elementwise.ufuncs import ufunc
from tinyxla.shapes.key_types import prng_key
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import Config, define_option
from tinyxla.tracing.core import Interpreted, Trace, Tracer
from tinyxla.tracing.device import Device
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec, Sharding
from tinyxla.transforms.key_arrays import KeyArray


def _aval(self: Any) -> Any:
    """The shape, element type, weakness, memory, and how the array is split along explicit axes."""
    return get_aval(self)


def _parts(self: Any) -> list[Any] | None:
    """The parts on the devices of this process, as arrays; None if the array is deleted."""
    return None if self.is_deleted() else [shard.data for shard in self.addressable_shards]


def _check_if_deleted(self: Any) -> None:
    """An error if the array is deleted."""
    if self.is_deleted():
        self.numpy()


def _trace(self: Any) -> Trace:
    """The trace to which a tracer belongs."""
    return self.owner


def _main(self: Any) -> Any:
    """What is the same for all tracers of one trace: the trace."""
    return self


def _function_repr(self: Any) -> str:
    """How JAX shows a compiled function; the function that it wraps need not print."""
    try:
        return f"<PjitFunction of {self.__wrapped__!r}>"
    except Exception:
        return "<PjitFunction>"


def set_attributes() -> None:
    """Give the classes these attributes, and generators of random bits their primitives."""
    record_generators()
    set_printed()
    mark_filtered_tracebacks()
    define_option("debug_key_reuse", False)
    KeyArray._consumed = property(consumption)  # type: ignore[attr-defined]
    for kind in (Jitted, PlacingJitted):
        kind._general = checking(kind._general)  # type: ignore[method-assign]
    for kind in (Array, KeyArray, SymbolicZero):
        kind.aval = property(_aval)  # type: ignore[attr-defined]
    array_type: Any = Array
    array_type._value = property(lambda self: self.numpy())
    array_type._npy_value = None  # no copy is kept on the host
    array_type._arrays = property(_parts)
    array_type._check_if_deleted = _check_if_deleted
    array_type._committed = property(lambda self: self.committed)
    array_type._fully_replicated_shard = lambda self: self.addressable_data(0)
    array_type.on_device_size_in_bytes = lambda self: self.nbytes
    array_type.unsafe_buffer_pointer = memories.address
    KeyArray.unsafe_buffer_pointer = lambda self: memories.address(self.words)  # type: ignore[attr-defined]
    ufunc.nargs = property(lambda self: self.nin)  # type: ignore[method-assign]
    array_type.__pow__ = recorded_power(Array.__pow__)
    array_type.__mod__, array_type.__rmod__ = (
        recorded_modulus(operator, k > 0) for k, operator in enumerate((Array.__mod__, Array.__rmod__))
    )
    for name, function in numpy_functions.items():
        setattr(numpy, name, function)
    for error in (TinyxlaError, AxisError, RankPromotionWarning):
        error.__str__ = with_jax_words(error.__str__)
    for stage in (Traced, Lowered, Compiled):
        stage.in_avals, stage.out_avals = property(in_avals), property(out_avals)  # type: ignore[attr-defined]
        stage.args_info = property(args_info)  # type: ignore[assignment, method-assign]
    compiled: Any = Compiled
    compiled.as_text = hlo_of_device
    compiled.input_formats, compiled.output_formats = property(input_formats), property(output_formats)
    array_type.format = property(array_format)
    Compiled.runtime_executable = lambda self: RuntimeExecutable(self)  # type: ignore[attr-defined]
    tell_of_compiling()
    Traced.jaxpr = property(traced_jaxpr)  # type: ignore[assignment, method-assign]
    Lowered.as_text = in_stablehlo(Lowered.as_text)
    Lowered.compiler_ir = global_ir(Lowered.compiler_ir)
    Jitted._cache_size = cache_size  # type: ignore[attr-defined]
    any_sharding: Any = Sharding
    any_sharding._device_assignment = property(lambda self: tuple(sorted(self.device_set, key=lambda d: d.id)))
    any_sharding._addressable_device_assignment = property(
        lambda self: tuple(d for d in self._device_assignment if d in self.addressable_devices)
    )
    sharding: Any = NamedSharding
    sharding.check_compatible_aval = lambda self, aval_shape: self.dimension_axes(aval_shape) and None
    Sharding._to_xla_hlo_sharding = hlo_sharding  # type: ignore[attr-defined]
    sharding._device_assignment = property(lambda self: tuple(self.mesh.devices.flat))
    PartitionSpec.__repr__ = _spec_text  # type: ignore[method-assign]
    device: Any = Device
    device.addressable_memories, device.default_memory = memories.memories, memories.default_memory
    device.memory = memories.memory
    device.client = property(lambda self: get_backend())
    prng_key.__module__ = "jax.dtypes"
    KeyArray._impl = property(lambda self: self.dtype)  # type: ignore[attr-defined]
    Config.x64_enabled = property(lambda self: self.enable_x64)  # type: ignore[attr-defined]
    Pullback.with_refs = with_refs  # type: ignore[attr-defined]
    tree_util.default_registry = Registry()  # type: ignore[attr-defined]
    # As in JAX, NumPy's functions take arrays for their values and give NumPy's arrays, which can be written to;
    # operators between arrays of both give this library's.
    for protocol in ("__array_ufunc__", "__array_function__"):
        delattr(Array, protocol)
    Tracer._trace = property(_trace)  # type: ignore[attr-defined]
    Trace.main = property(_main)  # type: ignore[attr-defined]
    for method in (flags.config_with_absl, flags.parse_flags_with_absl, flags.read):
        setattr(Config, method.__name__, method)
    # Programs tell functions that are compiled by the name of their type.
    for kind in (Jitted, PlacingJitted):
        kind.__name__ = kind.__qualname__ = "PjitFunction"
        kind.__module__ = "jaxlib._jax"
        kind.__repr__ = _function_repr
    Config.values = property(flags.values)  # type: ignore[attr-defined]
    # Packages such as autoray and opt_einsum find the library of an array by the module of its type.
    Interpreted.__init_subclass__ = classmethod(_name_module)  # type: ignore[assignment]
    kinds: list[type[Interpreted]] = [Interpreted]
    for kind in kinds:
        _name_module(kind)
        kinds += kind.__subclasses__()


def _name_module(kind: type[Interpreted]) -> None:
    """Let a class of arrays or tracers, but not one of a program's, be of a module of JAX's."""
    if kind.__module__.startswith("tinyxla."):
        kind.__module__ = "jax._src.core" if issubclass(kind, Tracer) else "jaxlib._jax"


def _spec_text(spec: PartitionSpec) -> str:
    """`P('x', None)`, and `P('x',)` with a comma after the only entry, as a tuple."""
    sums = spec.shown_sums()
    return f"P({', '.join((*map(repr, spec), *sums))})" if sums else f"P{tuple.__repr__(spec)}"
