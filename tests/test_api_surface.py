"""Every public name of JAX's modules is here too, or listed with the reason why not, and takes the same keywords."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

import pytest

import tinyxla as tx

MODULES = (
    "",
    "lax",
    "numpy",
    "numpy.linalg",
    "numpy.fft",
    "nn",
    "nn.initializers",
    "image",
    "profiler",
    "random",
    "tree",
    "tree_util",
    "dtypes",
    "errors",
    "ops",
    "flatten_util",
    "typing",
    "stages",
    "lax.linalg",
    "scipy.cluster.vq",
    "scipy.fft",
    "scipy.integrate",
    "scipy.interpolate",
    "scipy.linalg",
    "scipy.ndimage",
    "scipy.optimize",
    "scipy.signal",
    "scipy.spatial.transform",
    "scipy.sparse.linalg",
    "scipy.special",
    "scipy.stats",
)

ONE_DEVICE = "arrays are in the memory of one machine; the names that programs need are under the hook"
INTERNAL = "machinery of JAX: what is inside here is another"
MUTABLE = "arrays are immutable; programs written for JAX find references in tinyxla.jax"
KEYS = "whether a key is used twice is not checked"

ABSENT: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(
            "Shard array_garbage_collection_guard auto_pcast host_count host_id host_ids memory thread_guard "
            "remove_size_one_mesh_axis_from_type "
            "pmap".split(),
            ONE_DEVICE,
        ),
        **dict.fromkeys(
            "ad allow_f16_reductions api_util enable_checks interpreters lib "
            "jax2tf_associative_scan_reductions make_user_context monitoring no_execution no_tracing "
            "softmax_custom_jvp version extend".split(),
            INTERNAL,
        ),
        **dict.fromkeys("Ref empty_ref free_ref freeze new_ref ref".split(), MUTABLE),
        "debug_key_reuse": KEYS,
        "dlpack": "arrays have __dlpack__, and numpy.from_dlpack reads it",
    },
    "lax": {
        "dce_sink": "results that nothing needs are not computed",
        **dict.fromkeys("precv psend ragged_all_to_all".split(), ONE_DEVICE),
    },
    "profiler": {
        **dict.fromkeys("ProfileData ProfileEvent ProfileOptions ProfilePlane register_subprocess".split(), INTERNAL),
        **dict.fromkeys("start_server stop_server".split(), "traces are files that a viewer reads"),
        **dict.fromkeys("device_memory_profile save_device_memory_profile".split(), "reports list all memory"),
    },
    "tree_util": {"default_registry": INTERNAL},
    "errors": {
        "KeyReuseError": KEYS,
    },
    "stages": {"CompilerOptions": INTERNAL},
}


def pair(name: str) -> tuple[ModuleType, Any]:
    importlib.import_module("jax.extend")  # which is there once something has imported it
    theirs = importlib.import_module(f"jax.{name}".rstrip("."))
    ours: Any = tx
    for part in filter(None, name.split(".")):
        ours = getattr(ours, part)
    return theirs, ours


def public(module: ModuleType) -> set[str]:
    """Public names that are no primitives, and no modules of Python's that are merely imported there."""
    return {
        n
        for n in dir(module)
        if not n.startswith("_")
        and not n.endswith("_p")
        and not (isinstance(getattr(module, n), ModuleType) and not getattr(module, n).__name__.startswith("jax"))
    }


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_there_or_accounted_for(name: str) -> None:
    theirs, ours = pair(name)
    missing = {n for n in public(theirs) if not hasattr(ours, n)}
    absent = ABSENT.get(name, {})
    assert sorted(missing - absent.keys()) == []
    there = {n for n in absent if hasattr(ours, n)}
    assert sorted(there - {"pmap"}) == [], "listed as absent"
    assert sorted(absent.keys() - public(theirs) - {"pmap"}) == [], "JAX does not have these"


# Keywords that nothing is done with, so that functions need not carry them.
_OF_DEVICES = {"out_sharding", "device", "sharding", "in_sharding", "out_shardings", "spmd_axis_name"}
_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# What else is not taken. `out` is None in all of JAX; `where` is of ufuncs.
OTHER_KEYWORDS: dict[str, set[str]] = {
    **{f"numpy.{n}": {"a", "x", "x1", "x2", "b"} for n in "fmax fmin iscomplex isreal trunc".split()},
    **{f"numpy.{n}": {"out"} for n in ("isneginf", "isposinf")},
    **{f"random.{n}": {"mode"} for n in ("categorical", "choice", "gumbel")},
    **{f"random.{n}": {"dtype"} for n in ("key", "wrap_key_data")},
    **{f"{n}": {"concrete"} for n in ("checkpoint", "remat")},
    "make_jaxpr": {"axis_env"},
    "lax.ragged_dot": {"group_offset"},
    "lax.ragged_dot_general": {"group_offset"},
    "numpy.einsum": {"_dot_general"},
    "numpy.from_dlpack": {"copy"},
    "nn.standardize": {"algorithm"},
    "dtypes.issubdtype": {"a", "b"},
}


def keywords(function: Any) -> tuple[set[str], bool] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    return {p.name for p in parameters if p.kind in _KINDS}, anything


@pytest.mark.parametrize("name", MODULES)
def test_functions_take_the_keywords_of_jax(name: str) -> None:
    theirs, ours = pair(name)
    lacking: dict[str, list[str]] = {}
    for n in sorted(public(theirs)):
        function = getattr(theirs, n)
        if not callable(function) or isinstance(function, type) or not hasattr(ours, n):
            continue
        wanted, found = keywords(function), keywords(getattr(ours, n))
        if wanted is None or found is None or found[1]:
            continue
        less = wanted[0] - found[0] - _OF_DEVICES - OTHER_KEYWORDS.get(f"{name}.{n}".lstrip("."), set())
        if less:
            lacking[n] = sorted(less)
    assert lacking == {}
