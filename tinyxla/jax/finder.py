"""The finder on `sys.meta_path` that resolves `jax`, `jax.*` and `jaxlib` to modules of this library.

A module `jax.a.b` is the file `interface/a/b.py` (or `interface/a/b/__init__.py`) beside this one, where there is one;
names that it does not define are those of `tinyxla.a.b`. Without such a file `jax.a.b` is the module `tinyxla.a.b`
itself, if that is among the public ones. A private module `jax._src.a.b`, with such a file or without, has the names of
the public `jax.a.b` and of the packages around it, in which JAX shows what is defined there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tinyxla.errors import ArgumentError
from tinyxla.jax.options import set_from_environment
from tinyxla.jax.private_names import PrivateModule, is_required
from tinyxla.jax.tracing.attributes import set_attributes
from tinyxla.runtime.allocation import count_as_old
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import config

if TYPE_CHECKING:
    from importlib.metadata import Distribution

JAX_VERSION = "0.10.2"
"""The version of JAX whose interface is followed."""

_INTERFACE = Path(__file__).parent / "interface"
_ROOTS = ("jax", "jaxlib")
# The modules of tinyxla that stand for those of JAX of the same name, with their submodules.
_PUBLIC = frozenset(
    """ad_checkpoint checkpoint_policies custom_batching custom_derivatives debug distributed dtypes errors
    example_libraries experimental export ffi flatten_util image lax nn numpy ops profiler random scipy sharding stages
    test_util tree tree_util typing""".split()
)

# Where JAX shows names of private modules, if that has another name.
_SHOWN_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("api array basearray callback pmap shard_map".split(), ("jax",)),
    **dict.fromkeys("mesh named_sharding partition_spec sharding sharding_impls".split(), ("jax.sharding",)),
    "debugging": ("jax.debug",),
    "dtypes": ("jax.dtypes", "jax.numpy"),
    **dict.fromkeys(("prng", "random.prng"), ("jax.extend.random",)),
    "lib._jax": ("jaxlib._jax",),
    "lib.xla_client": ("jaxlib.xla_client",),
}


class JaxFinder(MetaPathFinder):
    """Finds JAX's modules, and the distributions `jax` and `jaxlib` for `importlib.metadata`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        count_as_old()  # packages' modules are many objects that stay
        root, _, rest = fullname.partition(".")
        if root not in _ROOTS:
            return None
        parts = rest.split(".") if rest else []
        base = _INTERFACE.joinpath(*([] if root == "jax" else [root]), *parts)
        for file, folders in ((base / "__init__.py", [str(base)]), (base.with_suffix(".py"), None)):
            if file.is_file():
                loader = _InterfaceLoader(fullname, str(file))
                if _is_private(fullname):
                    folders = folders or []  # what JAX has in a package of that name is found, too
                return importlib.util.spec_from_file_location(
                    fullname, file, loader=loader, submodule_search_locations=folders
                )
        twin = twin_name(fullname)
        if twin is not None:
            return ModuleSpec(fullname, _TwinLoader(twin), is_package=True)
        distribution = _probability_distribution(fullname)
        if distribution is not None:
            return ModuleSpec(fullname, _ProbabilityDistributionLoader(distribution))
        if _is_private(fullname) and (_public_modules(fullname, own=True) or is_required()):
            return ModuleSpec(fullname, _PrivateLoader(), is_package=True)
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tinyxla, which stands for JAX {JAX_VERSION} here, does not have it.",
            name=fullname,
        )

    def find_distributions(self, context: Any = None) -> Iterator[Distribution]:
        """The distributions that `importlib.metadata` is to find before those that are installed."""
        if context is not None and context.name in _ROOTS:
            from tinyxla.jax.distributions import JaxDistribution  # here, since few programs ask for versions

            yield JaxDistribution(context.name, JAX_VERSION, _INTERFACE)


class _InterfaceLoader(SourceFileLoader):
    """Runs a file of `interface`, whose names are completed by those of the module of tinyxla that it extends."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        twin = twin_name(module.__name__)
        if "__getattr__" not in vars(module):
            module.__getattr__ = _completion(module, twin)  # type: ignore[method-assign]
            if twin is not None:  # programs go through `vars(jax.lax)`, too
                vars(module).update(_shown(importlib.import_module(twin)) | vars(module))
        if twin is not None and "__all__" not in vars(module):
            module.__dir__ = lambda: sorted({*vars(module), *dir(importlib.import_module(twin))})


class _TwinLoader(Loader):
    """Gives a module of tinyxla under a second name."""

    def __init__(self, twin: str) -> None:
        self.twin = twin

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.twin)
        self.spec = module.__spec__  # which the import system replaces
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _PrivateLoader(Loader):
    """Gives a private module of JAX that has no file of its own."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return PrivateModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = _completion(module, None)  # type: ignore[method-assign]


class _ProbabilityDistributionLoader(Loader):
    """Gives a distribution, such as `scipy.stats.norm`, which is a module in JAX."""

    def __init__(self, distribution: Any) -> None:
        self.distribution = distribution
        self.own = frozenset(vars(distribution))

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.distribution

    def exec_module(self, module: Any) -> None:
        for name in ("__name__", "__loader__", "__package__", "__spec__"):
            if name not in self.own:
                vars(module).pop(name, None)


def twin_name(fullname: str) -> str | None:
    """The module of tinyxla with the same name as one of JAX: `tinyxla.numpy` for `jax.numpy`."""
    root, _, rest = fullname.partition(".")
    if root != "jax" or (rest and rest.split(".")[0] not in _PUBLIC):
        return None
    return _if_there(f"tinyxla.{rest}" if rest else "tinyxla")


def _if_there(name: str) -> str | None:
    """The name of a module, if there is that."""
    try:
        return name if importlib.util.find_spec(name) else None
    except (ModuleNotFoundError, ValueError):  # one of its parents is not there, or it is an object that is no module
        return None


def _is_private(fullname: str) -> bool:
    return fullname.startswith(("jax._src.", "jaxlib."))


def _public_modules(fullname: str, own: bool = False) -> list[str]:
    """The public modules that show names of a private one: for `jax._src.checkify` `jax.experimental.checkify`, for
    `jax._src.mesh` `jax.sharding`, and if not `own` those of packages around it: for `jax._src.lax.parallel` `jax.lax`.
    """
    name = fullname.removeprefix("jax._src.")
    parts = name.split(".")
    inner = [".".join(parts[:count]) for count in range(len(parts), len(parts) - 1 if own else 0, -1)]
    places = [f"{root}{name}" for name in inner for root in ("jax.", "jax.extend.", "jax.experimental.")]
    return [*_SHOWN_IN.get(name, ()), *filter(_if_there, places if parts[0] != "jaxlib" else ())]


def _public_name(fullname: str, name: str) -> Any:
    """A name of a private module as a public one shows it; else `_MISSING`."""
    modules = () if name.startswith("_") else map(importlib.import_module, _public_modules(fullname))
    found = (getattr(module, name, _MISSING) for module in modules)
    return next((x for x in found if x is not _MISSING and not isinstance(x, ModuleType)), _MISSING)


_MISSING = object()


def _probability_distribution(fullname: str) -> Any:
    """The distribution of that name of `scipy.stats`, an object; nothing for other names."""
    parent, _, name = fullname.rpartition(".")
    if parent != "jax.scipy.stats" or name.startswith("_"):
        return None
    found = getattr(importlib.import_module("tinyxla.scipy.stats"), name, None)
    return found if hasattr(found, "logpdf") or hasattr(found, "logpmf") else None


def _completion(module: ModuleType, twin: str | None) -> Callable[[str], Any]:
    """The `__getattr__` of a module: the names of its twin, then submodules."""

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return _public_names(module, twin)
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        if twin is not None:
            other = sys.modules.get(twin) or importlib.import_module(twin)
            found = getattr(other, name, module)
            if found is not module and not isinstance(found, ModuleType):
                if callable(found) and name in vars(other):
                    setattr(module, name, found)  # so that it is found at once by the next one who asks
                return found
        private = _is_private(module.__name__)
        if private and (shown := _public_name(module.__name__, name)) is not _MISSING:
            setattr(module, name, shown)
            return shown
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{module.__name__}.{name}":
                raise
        raise AttributeError(
            f"module {module.__name__!r} has no attribute {name!r}: tinyxla, which stands for JAX {JAX_VERSION} here, "
            "does not have it."
        )

    return __getattr__


def _public_names(module: ModuleType, twin: str | None) -> list[str]:
    """What `from module import *` gives: the names that it defines and those of its twin."""
    own = {name for name in vars(module) if not name.startswith("_")}
    if twin is None:
        return sorted(own)
    other = importlib.import_module(twin)
    return sorted(own.union(vars(other).get("__all__") or _shown(other)))


def _shown(module: ModuleType) -> dict[str, Any]:
    """The public names that a module of tinyxla has defined, but not its submodules."""
    names = vars(module).get("__all__") or [name for name in vars(module) if not name.startswith("_")]
    found = {name: vars(module)[name] for name in names if name in vars(module)}
    return {name: x for name, x in found.items() if not isinstance(x, ModuleType)}


def install() -> None:
    """Let `import jax` give tinyxla from now on, in this process.

    Raises:
        ArgumentError: JAX itself has been imported already.
    """
    if any(isinstance(finder, JaxFinder) for finder in sys.meta_path):
        return
    found = [root for root in _ROOTS if root in sys.modules]
    if found:
        raise ArgumentError(
            f"tinyxla.jax: {' and '.join(found)} had been imported before; import tinyxla.jax first, or run the "
            "program by python -m tinyxla.jax."
        )
    set_attributes()
    config.update("explicit_x64_dtypes", "warn")  # as in JAX
    config.update("out_of_bounds_indices", "clamp")
    config.update("list_indices", "refuse")
    config.update("reshape_operands", "defer")
    config.update("searchsorted_dtype", "int32")
    config.update("weak_integer_overflow", "wrap")
    config.update("boolean_products", "select")
    config.update("array_protocol_operands", "defer")
    config.update("custom_vjp_forward_mode", "refuse")
    set_from_environment()
    pytrees.rebuild_dicts_with_sorted_keys()
    sys.meta_path.insert(0, JaxFinder())
