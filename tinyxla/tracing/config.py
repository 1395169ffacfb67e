"""Options of the library: set for the process by `config.update`, or for a block of code in one thread by `setting`."""

from __future__ import annotations

import copy
import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeVar

from tinyxla.errors import AttributeValueError, UnknownOptionError, warn
from tinyxla.shapes import KEY_TYPES
from tinyxla.tracing.device import check_device, set_devices_each
from tinyxla.util.did_you_mean import did_you_mean
from tinyxla.util.tracebacks import MODES, set_mode_source

TRANSFER_GUARDS = (
    "transfer_guard_host_to_device",
    "transfer_guard_device_to_device",
    "transfer_guard_device_to_host",
)
_CHOICES = {
    "default_prng_impl": tuple(KEY_TYPES),
    "legacy_prng_key": ("allow", "warn", "error"),
    "explicit_x64_dtypes": ("allow", "warn", "error"),
    "weak_integer_overflow": ("error", "wrap"),
    "boolean_products": ("multiply", "select"),
    "array_protocol_operands": ("convert", "defer"),
    "numpy_dtype_promotion": ("standard", "strict"),
    "numpy_rank_promotion": ("allow", "warn", "raise"),
    "out_of_bounds_indices": ("raise", "clamp", "trace"),
    "list_indices": ("allow", "refuse"),
    "reshape_operands": ("convert", "defer"),
    "searchsorted_dtype": ("index", "int32"),
    "custom_vjp_forward_mode": ("transpose", "refuse"),
    "traceback_filtering": MODES,
    **dict.fromkeys(
        ("transfer_guard", *TRANSFER_GUARDS), ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
    ),
}
_CHECKS = [
    "debug_nans",
    "debug_infs",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "disabled_passes",
    "check_tracer_leaks",
    "no_execution",
    "target",
    *TRANSFER_GUARDS,
]

# Options that say what is told of tracing and compiling, or that it is an error. They change nothing of it, so what is
# compiled stays.
_OF_MESSAGES = frozenset(("log_compiles", "explain_cache_misses", "slow_compile_seconds", "no_tracing"))

# Options of JAX that change nothing here, each with the values that ask for no more than what holds anyway. So do None,
# False and "" for all of them.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        """
        backend_target bcoo_cusparse_lowering check_static_indices compilation_cache_check_contents
        compilation_cache_expect_pgle compilation_cache_include_metadata_in_key compiler_enable_remat_pass
        cpu_collectives_implementation cpu_enable_async_dispatch cross_host_transfer_socket_address
        cross_host_transfer_timeout_seconds cross_host_transfer_transfer_size cross_host_transport_addresses
        debug_leaked_clients_on_clear_backends debug_log_modules disable_bwd_checks disable_vmap_shmap_error
        disallow_mesh_context_manager distributed_debug dump_ir_to dynamic_shapes enable_checks
        enable_key_reuse_checks enable_pgle enable_recoverability exec_time_optimization_effort
        experimental_unsafe_xla_runtime_errors export_ignore_forward_compatibility force_dcn_cross_host_transfers
        high_dynamic_range_gumbel hlo_source_file_canonicalization_regex include_full_tracebacks_in_locations
        log_checkpoint_residuals memory_fitting_effort mock_gpu_topology mosaic_allow_hlo optimization_level
        pallas_enable_debug_checks pallas_poison_buffers pallas_verbose_errors pgle_profiling_runs
        pjrt_client_create_options ragged_dot_use_gpu_pallas_triton_lowering raise_persistent_cache_errors
        refs_to_pins remove_custom_partitioning_ptr_from_cache_key remove_size_one_mesh_axis_from_type
        share_binary_between_hosts source_url_schema thread_guard threefry_gpu_kernel_lowering
        traceback_in_locations_limit use_emit_pipeline_primitive xla_backend
        """.split(),
        (),
    ),
    **dict.fromkeys(  # which of two implementations computes the same
        """
        auto_pcast check_proxy_envs custom_vjp3 disable_most_optimizations enable_preemption_service
        include_debug_info_in_dumps pallas_use_mosaic_gpu pprint_use_color ragged_dot_use_ragged_dot_instruction remat3
        scan3 sort_devices_by_process_index use_direct_linearize use_simplified_jaxpr_constants
        """.split(),
        (True,),
    ),
    **dict.fromkeys((name + "_visible_devices" for name in ("cuda", "oneapi", "rocm")), ("all",)),
    **dict.fromkeys(("error_checking_behavior_" + kind for kind in ("divide", "nan", "oob")), ("ignore",)),
    "allow_f16_reductions": (True,),
    "use_shardy_partitioner": (True,),
    "array_garbage_collection_guard": ("allow",),
    "captured_constants_report_frames": (0,),
    "captured_constants_warn_bytes": (-1, 2_000_000_000),
    "compiler_detailed_logging_min_ops": (10,),
    "cpu_get_global_topology_timeout_minutes": (5,),
    "cpu_get_local_topology_timeout_minutes": (2,),
    "dump_ir_modes": ("stablehlo",),
    "embedded_constants_max_bytes": (32,),
    "memory_fitting_level": ("O2",),
    "pgle_aggregation_percentile": (90,),
    "send_traceback_to_runtime": ("off",),
    "serialization_version": (0,),
    "share_binary_between_hosts_timeout_ms": (1_200_000,),
    "tracer_error_num_traceback_frames": (5,),
    "use_magma": ("auto",),
    "xla_profile_version": (0,),
    "legacy_prng_key": ("allow",),
    "export_calling_convention_version": (9, 10),
    "default_matmul_precision": ("default", "high", "highest", "tensorfloat32", "float32"),  # products are always exact
    "logging_level": ("NOTSET",),
    "compilation_cache_max_size": (-1,),
    "mutable_array_checks": (True,),
    "persistent_cache_enable_xla_caches": ("xla_gpu_per_fusion_autotune_cache_dir", "none"),
    "persistent_cache_min_compile_time_secs": (0,),
    "persistent_cache_min_entry_size_bytes": (0, -1),
    "platform_name": ("cpu",),
    "platforms": ("cpu",),
    "random_seed_offset": (0,),
    "softmax_custom_jvp": (True,),
}
_warned: set[str] = set()


def warn_unless_satisfied(option: str, value: Any) -> None:
    """A warning, the first time, for a value of an option without effect that asks for what does not hold here."""
    is_satisfied = value is None or value is False or value == "" or value in _WITHOUT_EFFECT[option]
    if is_satisfied or option in _warned:
        return
    _warned.add(option)
    only = " or ".join(map(repr, _WITHOUT_EFFECT[option])) or "leaving it out"
    warn(f"The option {option!r} has no effect here, but got {value!r}; what holds is {only}.")


def _seconds_of_environment() -> float | None:
    text = os.environ.get("TINYXLA_SLOW_COMPILE_SECONDS", "2")
    try:
        return None if text.lower() == "off" else max(0.0, float(text))
    except ValueError:
        raise AttributeValueError(
            f"TINYXLA_SLOW_COMPILE_SECONDS must be a number of seconds or 'off', but is {text!r}."
        ) from None


class Config(threading.local):
    """Options of the library.

    The class has the values for the process. A thread's own attributes, which hide them, are those of the blocks of
    `setting` it is in.

    Attributes:
        enable_x64: 64-bit NumPy inputs and defaults stay 64-bit. The environment variable TINYXLA_ENABLE_X64 sets it.
        explicit_x64_dtypes: what a 64-bit element type that is asked for by name means without `enable_x64`: "allow"
            gives it, "warn" gives that of 32 bits with a warning, "error" refuses.
        weak_integer_overflow: what a Python integer becomes beside an array whose integer type does not hold it: an
            "error", or with "wrap" its low bits.
        boolean_products: what `x * mask` is of numbers and booleans, if the booleans have the shape of the result:
            "multiply" gives NaN where x is not finite and mask is false, as in NumPy, "select" gives 0 there.
        array_protocol_operands: what an operator between an array and an object with `__array__` does: "convert" takes
            the object for that array, "defer" leaves it to the object.
        disable_jit: compiled functions run as plain Python.
        debug_nans: results with a NaN are errors that name the operation and the user's line.
        debug_infs: the same for infinities.
        numpy_dtype_promotion: "strict" refuses to bring arrays of different types to a common one.
        numpy_rank_promotion: "warn" or "raise" where arrays of different rank broadcast.
        while_residual_bytes: how much memory the way back through a loop, whose length is not known beforehand, takes
            for what it keeps of the steps; beyond that it computes steps again.
        collective_timeout_seconds: how long a process of an MPI program waits for the others in a collective operation;
            then all are ended with a message that says who waits where.
        compilation_cache_dir: where compiled kernels are kept on disk; see `tinyxla.cache` for what holds without it.
        enable_compilation_cache: whether they are kept on disk.
        interpret_first: compiled functions answer by the interpreter until a thread has compiled them. The first result
            comes sooner, unless there are loops; the last bits of results may change when the compiled program takes
            over.
        traceback_filtering: what tracebacks show of the library's own frames. "auto" and "quiet_remove_frames" leave
            them out, "remove_frames" adds a note that says so, "tracebackhide" marks them for displays that know
            `__tracebackhide__` (pytest, IPython), "off" shows them. The environment variable
            TINYXLA_TRACEBACK_FILTERING sets it.
        default_prng_impl: the generator of keys that are made where none is named, and of those that are arrays of
            words.
        legacy_prng_key: "warn" or "error" where a function of random takes an array of words for a key.
        enable_custom_prng: `random.PRNGKey` makes keys like `random.key`, and no arrays of words.
        threefry_partitionable: bits of Threefry of which none depends on how many are drawn; else those that were drawn
            before there was this option.
        out_of_bounds_indices: what is done without a `mode` where known indices, an integer or an array, are outside of
            the array. "raise": an error. "clamp": reads take the next index inside, where arrays of indices, traced
            ones too, have no gradient, `take` fills in NaN, and updates are dropped. "trace": the same as is done where
            the indices are traced.
        list_indices: whether `x[[0, 1]]` is allowed to mean `x[array([0, 1])]`, as in NumPy, or an error ("refuse").
        reshape_operands: what `numpy.reshape` gives for an array of NumPy's: "convert" takes it for an array of this
            library, and "defer" leaves it to the method of its own, so that its values are known while functions are
            traced.
        searchsorted_dtype: of what `numpy.searchsorted` and `digitize` give: that of indices ("index"), which has 64
            bits with `enable_x64`, as the array API has it, or "int32", where that is enough.
        custom_vjp_forward_mode: what the derivative of a `custom_vjp` function is in forward mode: the "transpose" of
            its backward rule, or an error ("refuse").
        check_tracer_leaks: whether a traced or batched function that leaves a tracer in an outer variable or container
            is an error when it ends; else it is one where the tracer is used.
        disabled_passes: names of passes of the compiler that are left out, to find out which one matters: see
            `tinyxla.compiler.pipeline`. The environment variable TINYXLA_DISABLED_PASSES sets it, with commas between.
        target: sizes of the machine that code is generated for, where they are not those of this one:
            "last_level_bytes=4096,processors=64"; see `tinyxla.loopir.target`. What is compiled already keeps its code.
            The environment variable TINYXLA_TARGET sets it.
        num_cpu_devices: how many devices a process has, so that programs for many can be tried on one machine. The
            environment variable TINYXLA_NUM_CPU_DEVICES sets it. Meshes and arrays that are there keep their devices.
        lowering_platforms: those for which `lax.platform_dependent` chooses a function. `export` sets it.
        default_device: the device of arrays that were not placed; None for the first one of this process.
        log_compiles: what is traced and compiled is logged, with shapes and times, by the logger "tinyxla".
        explain_cache_misses: where a compiled function is traced, the same logger says what is different from the
            calls before.
        no_tracing: where a compiled function would be traced there is an error: a test that a program is warm.
        transfer_guard_host_to_device: whether numbers and arrays of NumPy's may become arguments of functions, which is
            a copy to a device: "allow", "log" (by the logger "tinyxla") or "disallow", which is an error; with
            "log_explicit" and "disallow_explicit" also where `device_put` says so.
        transfer_guard_device_to_device: the same for arrays that go to other devices.
        transfer_guard_device_to_host: the same for arrays that become NumPy's, which on a CPU copies nothing.
        transfer_guard: sets all three.
        no_execution: where a compiled function would run by itself there is an error.
        slow_compile_seconds: after how many seconds of tracing or compiling stderr tells what is done; None for never.
            The environment variable TINYXLA_SLOW_COMPILE_SECONDS sets it, with "off" for None.
        special: the options that are set for a block or check what is computed. Where there are any, nothing is looked
            up by a short cut that knows nothing of them.

    Options of JAX without a meaning here are accepted, and may be read. A value that asks for what does not hold here
    is a `NoEffectWarning`, once for each option. All may be spelled with `jax_` before them.
    """

    enable_x64: bool = os.environ.get("TINYXLA_ENABLE_X64", "").lower() in ("1", "true", "yes", "on")
    explicit_x64_dtypes: str = "allow"
    weak_integer_overflow: str = "error"
    boolean_products: str = "multiply"
    array_protocol_operands: str = "convert"
    disable_jit: bool = False
    debug_nans: bool = False
    debug_infs: bool = False
    numpy_dtype_promotion: str = "standard"
    numpy_rank_promotion: str = "allow"
    while_residual_bytes: int = 256 << 20
    collective_timeout_seconds: int = 300
    compilation_cache_dir: str | os.PathLike[str] | None = None
    enable_compilation_cache: bool = True
    interpret_first: bool = False
    traceback_filtering: str = "auto"
    default_prng_impl: str = "threefry2x32"
    legacy_prng_key: str = "allow"
    enable_custom_prng: bool = False
    threefry_partitionable: bool = True
    out_of_bounds_indices: str = "raise"
    list_indices: str = "allow"
    reshape_operands: str = "convert"
    searchsorted_dtype: str = "index"
    custom_vjp_forward_mode: str = "transpose"
    check_tracer_leaks: bool = False
    disabled_passes: tuple[str, ...] = tuple(filter(None, os.environ.get("TINYXLA_DISABLED_PASSES", "").split(",")))
    target: str = os.environ.get("TINYXLA_TARGET", "")
    num_cpu_devices: int = int(os.environ.get("TINYXLA_NUM_CPU_DEVICES", "1"))
    lowering_platforms: tuple[str, ...] = ("cpu",)
    default_device: Any = None
    log_compiles: bool = False
    explain_cache_misses: bool = False
    no_tracing: bool = False
    no_execution: bool = False
    transfer_guard_host_to_device: str = "allow"
    transfer_guard_device_to_device: str = "allow"
    transfer_guard_device_to_host: str = "allow"
    transfer_guard: str = "allow"
    slow_compile_seconds: float | None = _seconds_of_environment()
    special: tuple[tuple[str, Any], ...] = ()
    _watchers: ClassVar[list[Callable[[], None]]] = []
    _of_no_effect: ClassVar[dict[str, Any]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def __getattr__(self, name: str) -> Any:
        option = name.removeprefix("jax_")
        if option in _OPTIONS:
            return getattr(self, option)
        if option in _WITHOUT_EFFECT:
            return self._of_no_effect.get(option)
        raise AttributeError(
            f"There is no option {name!r}.{did_you_mean(option, _OPTIONS)} The options are {', '.join(_OPTIONS)}."
        )

    def __repr__(self) -> str:
        """The options that are not as they are at first."""
        changed = [f"{o}={getattr(self, o)!r}" for o in _OPTIONS if getattr(self, o) != _OPTIONS[o]]
        return f"Config({', '.join(changed)})"

    def update(self, name: str, val: Any) -> None:
        """Set an option for the process; accepts JAX's names (`jax_enable_x64`)."""
        option = name.removeprefix("jax_")
        if option in _WITHOUT_EFFECT:
            warn_unless_satisfied(option, val)
            self._of_no_effect[option] = val
            return
        found = _checked(option, val)
        for one in _options_set_by(option):
            setattr(Config, one, found)
        if option in _OF_MESSAGES:
            return
        Config.special = tuple((o, getattr(Config, o)) for o in _CHECKS if getattr(Config, o) != _OPTIONS[o])
        for watcher in self._watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have a function called after every change for the process."""
        self._watchers.append(watcher)


# The options, and the values that they have at first.
_OPTIONS = {o: getattr(Config, o) for o in Config.__annotations__ if o != "special" and not o.startswith("_")}


def define_option(option: str, value: bool) -> None:
    """A further option of something that is built on the library, which looks at it whenever a compiled function is
    called: where it is set, nothing is looked up by a short cut."""
    _OPTIONS[option] = value
    _CHECKS.append(option)
    setattr(Config, option, value)


def option_names() -> tuple[str, ...]:
    """The names of all options, those of JAX without effect included."""
    return tuple(dict.fromkeys((*_OPTIONS, *_WITHOUT_EFFECT)))


def _checked(option: str, value: Any) -> Any:
    if option not in _OPTIONS:
        known = ", ".join(_OPTIONS)
        raise UnknownOptionError(
            f"There is no option {option!r}.{did_you_mean(option, _OPTIONS)} The options are {known}."
        )
    choices = _CHOICES.get(option)
    if option == "num_cpu_devices" and value == -1:  # JAX's word for as many as there are
        return 1
    if option in ("collective_timeout_seconds", "num_cpu_devices", "while_residual_bytes"):
        if type(value) is not int or value <= 0:
            raise AttributeValueError(f"The option {option!r} must be a positive integer, but got {value!r}.")
        return value
    if option == "slow_compile_seconds":
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            raise AttributeValueError(f"The option {option!r} must be a number of seconds or None, but got {value!r}.")
        return value
    if option == "default_device":
        check_device("The option 'default_device'", value)
        return value
    if option in ("disabled_passes", "lowering_platforms"):
        if not isinstance(value, tuple | list) or not all(isinstance(name, str) for name in value):
            raise AttributeValueError(f"The option {option!r} is a tuple of names, but got {value!r}.")
        return tuple(value)
    if option == "target":
        if not isinstance(value, str):
            raise AttributeValueError(f"The option 'target' is text such as 'l2_bytes=65536', but got {value!r}.")
        return value
    if option == "compilation_cache_dir":
        if value is not None and not isinstance(value, str | os.PathLike):
            raise AttributeValueError(f"The option {option!r} must be a path or None, but got {value!r}.")
        return value
    if choices is None and not isinstance(value, bool):
        raise AttributeValueError(f"The option {option!r} is True or False, but got {value!r}.")
    if choices is not None and value not in choices:
        raise AttributeValueError(f"The option {option!r} is one of {', '.join(choices)}, but got {value!r}.")
    return value


config = Config()
set_devices_each(config.num_cpu_devices)
config.watch(lambda: set_devices_each(config.num_cpu_devices))
set_mode_source(lambda: config.traceback_filtering)
_asked = os.environ.get("TINYXLA_TRACEBACK_FILTERING", "")
if _asked in MODES:
    Config.traceback_filtering = _asked


_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiler_options() -> tuple[object, ...]:
    """The values of the options that decide what the compiler makes."""
    return config.while_residual_bytes, config.disabled_passes, config.target


class CachedByOptions(Generic[_P, _R]):
    """A function of the compiler with `functools.lru_cache`, whose options are part of the key."""

    def __init__(self, function: Callable[_P, _R], size: int) -> None:
        functools.update_wrapper(self, function)

        def found(options: object, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            return function(*args, **kwargs)

        self._found = functools.lru_cache(size)(found)
        self.cache_clear, self.cache_info = self._found.cache_clear, self._found.cache_info

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._found(compiler_options(), *args, **kwargs)


def cached_by_options(size: int) -> Callable[[Callable[_P, _R]], CachedByOptions[_P, _R]]:
    """A decorator: `functools.lru_cache(size)` with the options of the compiler as part of the key."""
    return lambda function: CachedByOptions(function, size)


class Block(ContextDecorator, ABC):
    """A context manager that changes the state of a thread for a `with` block, or as a decorator for each call.

    One that is a generator would not do: an exception from outside (Ctrl-C, say) that comes between its `yield` and the
    block ends it when the garbage collector comes by, which may be in another thread. `__enter__` and `__exit__` change
    the state by assignments at their end or beginning, with no call between them: so it is changed, or it is not. (What
    no class in Python can help: an exception that comes as `__exit__` is entered leaves the state as it is inside.)
    """

    @abstractmethod
    def __enter__(self) -> None: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def _recreate_cm(self) -> Self:  # for each call of what it decorates, which may come from several threads
        return copy.copy(self)


class NoEffect(Block):
    """The context of an option without effect."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def _options_set_by(option: str) -> tuple[str, ...]:
    """The option, and those that it sets besides."""
    return (option, *TRANSFER_GUARDS) if option == "transfer_guard" else (option,)


class setting(Block):
    """The option has that value inside, in this thread."""

    def __init__(self, option: str, value: Any) -> None:
        self._option = option
        self._value = _checked(option, value)
        self._options = _options_set_by(option)

    def __repr__(self) -> str:
        return f"<setting {self._option}={self._value!r}>"

    def __enter__(self) -> None:
        own, values = vars(config), dict.fromkeys(self._options, self._value)
        changed = {o: own[o] for o in _OPTIONS if o in own} | values
        special = tuple((o, x) for o, x in {**dict(Config.special), **changed}.items() if o not in _OF_MESSAGES)
        self._before = own, {o: own[o] for o in (*self._options, "special") if o in own}
        values["special"] = special
        own.update(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        own, before = self._before
        for option in (*self._options, "special"):
            if option in before:
                own[option] = before[option]
            else:
                del own[option]


def options_of_traces() -> tuple[tuple[str, Any], ...]:
    """The options that are set for a block or check what is computed, but for those that change nothing of what a
    function is traced to."""
    return tuple(x for x in config.special if x[0] not in _OF_TRANSFERS)


_OF_TRANSFERS = frozenset(_options_set_by("transfer_guard"))
