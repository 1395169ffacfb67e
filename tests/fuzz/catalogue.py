"""Every public function, discovered by `dir`, with the templates of its calls.

Most templates follow from a function's signature: the names of its parameters tell what they take. The tables of
`catalogue_*` have those of functions whose arguments are structured. A function is in the catalogue or in `EXCLUDED`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import tinyxla

from . import catalogue_lax, catalogue_methods, catalogue_numpy, catalogue_others

# All of whose names are public; of the other modules, those that JAX has too.
WHOLE = ("lax", "nn", "numpy", "random")
MODULES = (
    *WHOLE,
    *"lax.linalg numpy.linalg numpy.fft nn.initializers image ops".split(),
    *(f"scipy.{m}" for m in "cluster.vq fft integrate linalg ndimage optimize signal special stats".split()),
    "scipy.sparse.linalg",
)

TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "numpy": catalogue_numpy.NUMPY,
    "numpy.linalg": catalogue_numpy.NUMPY_LINALG,
    "numpy.fft": catalogue_numpy.NUMPY_FFT,
    "lax": catalogue_lax.LAX,
    "lax.linalg": catalogue_lax.LAX_LINALG,
    "nn": catalogue_others.NN,
    "nn.initializers": catalogue_others.INITIALIZERS,
    "random": catalogue_others.RANDOM,
    "image": catalogue_others.IMAGE,
    "ops": catalogue_others.OPS,
    "scipy.linalg": catalogue_others.SCIPY_LINALG,
    **catalogue_others.SCIPY,
}

_TYPE_NAMES = (
    "bfloat16 bool bool_ cdouble complex128 complex64 complex_ csingle double float16 float32 float4_e2m1fn float64 "
    "float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz "
    "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float_ int1 int16 int2 int32 int4 int64 int8 int_ single uint uint1 "
    "uint16 uint2 uint32 uint4 uint64 uint8"
)
_ON_DISK = "reads or writes files"
_PRINTING = "sets how arrays are printed"
_DEVICES = "there is one device: it gives its argument back"

EXCLUDED: dict[str, str] = {
    **dict.fromkeys(
        (f"numpy.{name}" for name in "int1 uint1 float6_e2m3fn float6_e3m2fn".split()),
        "JAX makes no arrays of the type on a CPU; test_narrowest_types_are_types_of_arrays has it",
    ),
    **dict.fromkeys(
        ("lax.after_all", "lax.infeed", "lax.outfeed"), "tokens and the host's queues; test_host_queues has them"
    ),
    "lax.DotDimensionNumbers": "a type for annotations",
    **dict.fromkeys(("lax.cospi", "lax.sinpi"), "JAX and SciPy have no such function; test_scalar_math has them"),
    "lax.pbroadcast": "JAX's does not run under vmap; test_named_axes has it",
    "lax.rng_uniform": "draws from a hidden state",
    **dict.fromkeys(
        ("lax.pcast", "lax.pvary"), "inside of shard_map; tests/partitioning and tests/jax/meshes have them"
    ),
    "lax.with_sharding_constraint": _DEVICES,
    **dict.fromkeys(
        (
            *(f"lax.linalg.{n}" for n in "cholesky_update householder_product ormqr qdwh".split()),
            *(f"scipy.linalg.{n}" for n in "eigh_tridiagonal expm_frechet funm qr_multiply rsf2csf".split()),
            "scipy.linalg.solve_sylvester",
        ),
        "their operands belong together, as factors do; test_matrix_reductions has them",
    ),
    **dict.fromkeys(
        ("nn.get_scaled_dot_general_config", "nn.scaled_dot_general", "nn.scaled_matmul"),
        "JAX's do not run on CPUs; test_nn_quantized has them",
    ),
    "scipy.special.sph_harm_y": "takes a number of orders beside arrays; test_scipy_additions has it",
    "lax.zeros_like_array": "not in JAX any more; numpy.zeros_like is the same",
    "numpy.fromfile": _ON_DISK,
    **{f"numpy.{n}": _ON_DISK for n in "load save savez".split()},
    **{f"numpy.{n}": _PRINTING for n in "get_printoptions printoptions set_printoptions".split()},
    "numpy.view": "a method of arrays in JAX; test_indexing has it",
    "numpy.frompyfunc": "makes a ufunc of a function; test_ufuncs has it",
    "random.wrap_key_data": "a typed key in JAX; test_random has it",
    "random.key_impl": "gives a name, of which there is one",
    "random.key_dtype": "gives an element type; test_key_arrays has it",
    "random.random_seed": "gives a typed key; test_generators has it",
    "random.key": "a typed key in JAX; PRNGKey draws the same bits",
}

# Whose value depends on arrays' values in shape or type, so that neither package can trace them.
CONCRETE = frozenset(
    f"numpy.{n}"
    for n in "array_repr array_str iscomplexobj isrealobj iterable ndim size shape finfo iinfo frombuffer isscalar "
    "broadcast_shapes promote_types result_type can_cast issubdtype isdtype einsum_path empty empty_like".split()
) | frozenset(
    f"lax.{n}"
    for n in "broadcast_shapes conv_dimension_numbers conv_general_permutations conv_general_shape_tuple dtype empty "
    "conv_shape_tuple conv_transpose_shape_tuple padtype_to_pads reduce_window_shape_tuple shape_as_value".split()
)

# What JAX computes in 32 bits, whatever the type.
SINGLE = frozenset(("nn.dot_product_attention",))

# Whose work or result grows faster than the array, in either package: their arrays are small.
SMALL = frozenset(
    f"numpy.{n}"
    for n in "outer kron isin intersect1d setdiff1d setxor1d union1d vander diag diagflat digitize searchsorted tile "
    "polyval histogram ix_ meshgrid interp unique array_str array_repr".split()
) | frozenset(
    ("nn.one_hot", "lax.broadcast", "lax.tile", "scipy.stats.rankdata", "scipy.stats.mode", "scipy.linalg.expm")
)

# How the parameters of a signature are drawn: by their name, if they are required, and if they are not.
_ARRAYS = "a x x1 y z m operand array arr ary arys p q obj lhs u v b x2 rhs w a1 a2 ar1 ar2 args i1 q".split()
_REQUIRED: dict[str, str] = {"axis": "{axis}", "axes": "{axes}", "shape": "{shape}", "dtype": "{dtype}", "n": "{?2|3}"}
_OPTIONAL: dict[str, str] = {
    "axis": "{axis}",
    "keepdims": "{?True|False}",
    "alpha": "{?0.5|2.0}",
    "negative_slope": "{?0.1|0.5}",
    "b": "{?1.0|4.5}",
    "deg": "{?True|False}",
    "approximate": "{?True|False}",
}
_DENSITIES = ("{float S}", "{any S}")


_OF_ONE_SHAPE = re.compile(r"\{\w+ S[~ }]")
_ALONG_AXES = re.compile(r"axis|axes|\[")


class Entry(NamedTuple):
    """A public function: where it is, how it is called, and what says how it should behave."""

    name: str
    templates: tuple[str, ...]
    oracle: str = "jax"

    @property
    def elementwise(self) -> bool:
        """Whether a template only has arrays of one shape, so that no element's error depends on another element."""
        return all(_OF_ONE_SHAPE.search(t) and not _ALONG_AXES.search(t) for t in self.templates)


def resolve(package: Any, name: str) -> Any:
    """An attribute of attributes; modules on the way are imported."""
    value = package
    for part in name.split("."):
        if isinstance(value, ModuleType) and not hasattr(value, part):
            importlib.import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return value


def _function_names() -> list[str]:
    import jax

    names: list[str] = []
    for module in MODULES:
        ours = resolve(tinyxla, module)
        theirs = resolve(jax, module)
        for n in dir(ours):
            value = getattr(ours, n)
            if n.startswith("_") or isinstance(value, ModuleType | type) or not callable(value):
                continue
            if module in WHOLE or hasattr(theirs, n):
                names.append(f"{module}.{n}")
    return names


def _methods_of_families() -> list[str]:
    stats = resolve(tinyxla, "scipy.stats")
    return [
        f"scipy.stats.{family}.{n}"
        for family in catalogue_others.FAMILIES
        for n in dir(getattr(stats, family))
        if not n.startswith("_") and callable(getattr(getattr(stats, family), n))
    ]


def public_names() -> list[str]:
    """All public functions, also those that are excluded."""
    return _function_names() + _methods_of_families()


def from_signature(function: Any) -> str | None:
    """A template made of the parameters' names, or None where they do not tell enough."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    text: list[str] = []
    arrays = 0
    for p in parameters:
        required = p.default is inspect.Parameter.empty
        if required and p.kind is inspect.Parameter.VAR_KEYWORD:
            return None
        if required and p.name in _REQUIRED:
            text.append(f", {_REQUIRED[p.name]}")
        elif required:
            if p.name not in _ARRAYS and p.kind is not inspect.Parameter.POSITIONAL_ONLY:
                return None
            arrays += 1
            text.append(", {any S}" if arrays == 1 else ", {any S~}")
        elif p.name in _OPTIONAL:
            text.append(f"<<, {p.name}={_OPTIONAL[p.name]}>>")
    return "(" + "".join(text).removeprefix(", ") + ")"


def _templates(name: str) -> tuple[str, ...] | None:
    module, _, last = name.rpartition(".")
    if module.startswith("scipy.stats."):
        return _of_family(module.rpartition(".")[2], last)
    if module == "numpy" and last in _TYPE_NAMES.split():
        return ("({?1|2.5|0|{any S}})",)
    if module == "lax" and last in catalogue_lax.COLLECTIVES:
        return catalogue_lax.COLLECTIVES[last]
    declared = TABLES[module].get(last)
    if declared is not None:
        return declared
    derived = from_signature(resolve(tinyxla, name))
    return None if derived is None else (derived,)


def _of_family(family: str, method: str) -> tuple[str, ...]:
    call = catalogue_others.FAMILIES[family]
    if method in catalogue_others.QUANTILES:
        call = "({float S unit}" + call[call.index("}") + 1 :]
    if method == "entropy":
        call = "({float 3 positive}<<, loc={?0|1}>>)"
    return (call,)


# Functions that JAX has in name only.
_NOT_IN_JAX = frozenset(("numpy.fromiter",))


def _oracle(name: str) -> str:
    import jax

    if name in _NOT_IN_JAX:
        return "scipy"
    try:
        resolve(jax, name)
    except (AttributeError, ImportError):
        return "scipy"
    return "jax"


@cache
def catalogue() -> dict[str, Entry]:
    """All functions that are called, by name."""
    entries: dict[str, Entry] = {}
    for name in public_names():
        templates = None if name in EXCLUDED else _templates(name)
        if templates is not None:
            entries[name] = Entry(name, templates, _oracle(name))
    for name, templates in catalogue_methods.EXPRESSIONS.items():
        entries[name] = Entry(name, templates)
    return entries


def unaccounted() -> list[str]:
    """Public functions that are neither called nor excluded with a reason."""
    return sorted(n for n in public_names() if n not in catalogue() and n not in EXCLUDED)
