"""The examples in the docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import pytest

import tinyxla as tx
from tests.docs.modules import load
from tinyxla.numpy.types import ScalarType

HAVE_EXAMPLES = """
api.callbacks api.jit api.context_managers api.sharding.devices cache debug dtypes ffi flatten_util lax lax.contraction
lax.loops.control_flow lax.convolution lax.elementwise lax.fourier lax.indexing lax.linalg lax.movement lax.sorting
lax.padding lax.random_bits lax.reductions lax.values nn nn.activations nn.attention nn.initializers nn.normalization
numpy.fft numpy.linalg numpy.indexing.tricks numpy.polynomials numpy.sorting numpy.elementwise.integer_functions
profiler random random.distributions random.derived random.keys random.permutation image experimental.ode
experimental.jet experimental.checkify.api experimental.checkify.errors experimental.sparse.bcoo scipy.cluster.vq
scipy.fft scipy.interpolate scipy.linalg scipy.ndimage scipy.optimize scipy.signal scipy.sparse.linalg scipy.special
scipy.stats numpy.segment_reductions text.parser runtime.threads tree tree_util xla xla.layouts xla.shapes
""".split()

RAISE_NOTHING = frozenset(  # functions that take anything, or nothing: no argument is wrong
    """
    block_until_ready clear_caches copy_to_host_async default_backend default_matmul_precision effects_barrier
    print_environment_info numpy.isscalar numpy.iterable lax.create_token sharding.get_abstract_mesh sharding.get_mesh
    distributed.is_initialized distributed.process_count distributed.process_index distributed.shutdown
    checkpoint_policies.checkpoint_dots checkpoint_policies.checkpoint_dots_with_no_batch_dims
    checkpoint_policies.dots_saveable checkpoint_policies.dots_with_no_batch_dims_saveable
    checkpoint_policies.everything_saveable checkpoint_policies.nothing_saveable
    checkpoint_policies.offload_dot_with_no_batch_dims profiler.machine cache.clear cache.directory cache.entries
    cache.verify xla.CreateChannelHandle xla.CreateDeviceToHostChannelHandle xla.CreateHostToDeviceChannelHandle
    export.default_export_platform export.is_symbolic_dim
    """.split()
)

NEED_NONE = {  # names, of methods without that of the class: why they have no example
    **dict.fromkeys(("tree_flatten", "tree_unflatten"), "a protocol: `tree_util` calls them"),
    "KernelError": "it would compile a kernel, which takes seconds",
}


def modules() -> Iterator[str]:
    """All modules but those that need a compiler to be imported, and the hook, after which `import jax` is tinyxla: its
    examples run in a process of their own (`test_jax_hook`)."""
    for found in pkgutil.iter_modules(tx.__path__, "tinyxla."):
        if found.name == "tinyxla.jax":
            continue
        yield found.name
        if found.ispkg:
            package = importlib.import_module(found.name)
            inner = pkgutil.walk_packages(package.__path__, f"{found.name}.")
            yield from (x.name for x in inner if not x.name.startswith("tinyxla.backends.numba"))


MODULES = ["tinyxla", *modules()]


class Finder(doctest.DocTestFinder):
    """What `doctest` finds, cached properties, and functions that a decorator of another module has wrapped."""

    def _from_module(self, module: ModuleType | None, object: object) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        own = object.func if isinstance(object, cached_property) else object
        whole = inspect.unwrap(own) if inspect.isfunction(own) else own
        return super()._from_module(module, whole)  # type: ignore[misc]


@pytest.mark.sample(every=1)
@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """Examples run as pasted into a new interpreter: they import what they use."""
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in Finder().find(module, name, globs={"__name__": "__main__"}):
        runner.run(found)
    assert runner.failures == 0, f"{runner.failures} of {runner.tries} examples of {name} fail; see the output"
    assert runner.tries > 0 or name.removeprefix("tinyxla.") not in HAVE_EXAMPLES


@cache
def public_docstrings() -> list[tuple[str, str]]:
    """The names and docstrings of public modules that need an example: functions, classes and their methods. Names of
    element types and protocols, of which no objects are made, need none; what other packages define has none."""
    reference = load("reference")
    found: list[tuple[str, str]] = []
    for module in map(importlib.import_module, reference.MODULES):
        for item in reference.public_items(module):
            value = item.value
            is_own = str(getattr(value, "__module__", None) or type(value).__module__).startswith("tinyxla")
            is_bare = isinstance(value, ScalarType) or getattr(value, "_is_protocol", False)
            if not is_own or not callable(value) or is_bare or item.name in NEED_NONE:
                continue
            found.append((f"{module.__name__}.{item.name}", reference.documentation(value)))
            if inspect.isclass(value) and not issubclass(value, BaseException):
                found += [(f"{module.__name__}.{item.name}.{name}", text) for name, text in methods_of(value)]
    return found


def methods_of(kind: type) -> Iterator[tuple[str, str]]:
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", member)
        if inspect.isroutine(function) and not name.startswith("_") and name not in NEED_NONE:
            yield name, inspect.getdoc(function) or ""


def test_public_names_have_examples() -> None:
    assert sorted({name for name, text in public_docstrings() if ">>> " not in text}) == []


ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*): ", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """The sections of a docstring, by title."""
    parts = re.split(r"^(\w+):[ ]*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def public_functions() -> list[tuple[str, Any, str]]:
    """The names of public functions, the functions and their docstrings. Ufuncs and element types are objects."""
    reference = load("reference")
    found: list[tuple[str, Any, str]] = []
    for module in map(importlib.import_module, reference.MODULES):
        for item in reference.public_items(module):
            own = str(getattr(item.value, "__module__", "")).startswith("tinyxla")
            if own and inspect.isfunction(item.value):
                found.append((f"{module.__name__}.{item.name}", item.value, inspect.getdoc(item.value) or ""))
    return found


def parameters_of(name: str, function: Any) -> set[str]:
    """The parameters that a docstring states. Functions of `xla` take a builder first, as the module says."""
    parameters = set(inspect.signature(function).parameters)
    return parameters - {"builder"} if name.startswith("tinyxla.xla.") else parameters


def test_public_functions_state_their_arguments() -> None:
    missing: dict[str, set[str]] = {}
    for name, function, text in public_functions():
        entries = ENTRY.findall(sections(text).get("Args", ""))
        stated = {parameter.strip("* ") for entry in entries for parameter in entry.split(",")}
        if not parameters_of(name, function) <= stated:
            missing[name] = parameters_of(name, function) - stated
    assert missing == {}


def test_arguments_that_docstrings_state_are_parameters() -> None:
    unknown: dict[str, set[str]] = {}
    for name, function, text in public_functions():
        signature = inspect.signature(inspect.unwrap(function)), inspect.signature(function)
        known = {parameter for one in signature for parameter in one.parameters}
        entries = ENTRY.findall(sections(text).get("Args", ""))
        stated = {parameter.strip("* ") for entry in entries for parameter in entry.split(",")}
        takes_any = {"kwargs", "options", "named"} & known
        if not takes_any and not stated <= known:
            unknown[name] = stated - known
    assert unknown == {}


def test_public_functions_state_their_results() -> None:
    missing = [
        name
        for name, function, text in public_functions()
        if inspect.signature(function).return_annotation not in (None, "None")
        and not {"Returns", "Yields"} & set(sections(text))
    ]
    assert missing == []


def test_public_functions_state_their_errors() -> None:
    without = {name.removeprefix("tinyxla.") for name, _, text in public_functions() if "Raises" not in sections(text)}
    assert without == RAISE_NOTHING  # no more, and no fewer


@cache
def public_methods() -> list[tuple[str, Any, str]]:
    """The names of methods of public classes, the functions and their docstrings, without those of exceptions."""
    reference = load("reference")
    found: list[tuple[str, Any, str]] = []
    for module in map(importlib.import_module, reference.MODULES):
        for item in reference.public_items(module):
            kind = item.value
            own = inspect.isclass(kind) and kind.__module__.startswith("tinyxla")
            if not own or getattr(kind, "_is_protocol", False) or issubclass(kind, BaseException):
                continue
            for name, text in methods_of(kind):
                function = getattr(vars(kind)[name], "__func__", vars(kind)[name])
                if callable(function):  # cached properties are not
                    found.append((f"{module.__name__}.{item.name}.{name}", function, text))
    return found


def test_public_methods_state_their_arguments_and_results() -> None:
    missing: dict[str, set[str]] = {}
    for name, function, text in public_methods():
        signature = inspect.signature(function)
        entries = ENTRY.findall(sections(text).get("Args", ""))
        stated = {parameter.strip("* ") for entry in entries for parameter in entry.split(",")}
        wanted = set(signature.parameters) - {"self", "cls"} - stated
        gives = signature.return_annotation not in (None, "None", "NoReturn")
        if gives and not {"Returns", "Yields"} & set(sections(text)):
            wanted.add("Returns")
        if wanted:
            missing[name] = wanted
    assert missing == {}


def test_examples_of_public_names_are_found() -> None:
    """`test_examples` runs what the finder finds in a module: that is every example of public names."""
    modules = [(name, importlib.import_module(name)) for name in MODULES]
    found = {inspect.cleandoc(x.docstring or "") for name, module in modules for x in Finder().find(module, name)}
    assert sorted(name for name, text in public_docstrings() if ">>> " in text and text not in found) == []


def test_modules_with_examples_are_modules() -> None:
    assert {f"tinyxla.{name}" for name in HAVE_EXAMPLES} <= set(MODULES)
