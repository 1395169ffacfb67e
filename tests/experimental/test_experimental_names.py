"""Public names and keywords of `experimental.checkify`, `jet` and `sparse` are those of JAX."""

import importlib
import inspect
import types

import pytest

MODULES = {"checkify": set[str](), "jet": set[str](), "sparse": {"SparseTracer"}}  # and names that are internal to JAX


def _modules(name):
    theirs = pytest.importorskip(f"jax.experimental.{name}")
    return theirs, importlib.import_module(f"tinyxla.experimental.{name}")


def _public(module, name):
    defined = f"jax.experimental.{name}", f"jax._src.{name}"
    return {
        n
        for n, value in vars(module).items()
        if not n.startswith("_") and not n.endswith("_p") and not isinstance(value, types.ModuleType)
        if str(getattr(value, "__module__", defined[0])).startswith(defined) and (name != "jet" or n == "jet")
    }


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_there(name):
    theirs, ours = _modules(name)
    assert {n for n in _public(theirs, name) if not hasattr(ours, n)} == MODULES[name]


@pytest.mark.parametrize("name", MODULES)
def test_functions_take_the_keywords_of_jax(name):
    theirs, ours = _modules(name)
    for n in _public(theirs, name) - MODULES[name]:
        if not inspect.isfunction(inspect.unwrap(getattr(theirs, n))):
            continue
        wanted = inspect.signature(getattr(theirs, n)).parameters
        found = inspect.signature(getattr(ours, n)).parameters
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()):
            continue
        named = {k for k, p in wanted.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        assert named <= found.keys(), n


@pytest.mark.parametrize("kind", ["BCOO", "BCSR", "COO", "CSR", "CSC"])
def test_sparse_arrays_have_the_methods_of_jax(kind):
    theirs, ours = _modules("sparse")
    methods = {n for n in dir(getattr(theirs, kind)) if not n.startswith("_")}
    ours_has = set(dir(getattr(ours, kind))) | {"data", "indices", "indptr", "row", "col", "shape"}
    allowed = {"sum", "indices_sorted", "unique_indices"}  # COO, CSR and CSC of JAX raise; set in __init__
    assert methods - ours_has - allowed == set()
