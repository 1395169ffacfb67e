"""Which tests use JAX, or LLVM: a use analysis of the source of test modules, over the names at their top.

A test uses a package if its function, its decorators, or a fixture, function or table that it names do so, in its own
module or in another one of the tests. So the markers `jax` and `llvm` need no list. What a program in a string imports
is not seen: such a test is marked by hand.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.support import ROOT

_COMPILER = ("backends.numba", "loopir", "compiler.pipeline", "compiler.schedule")  # what imports llvmlite
PACKAGES = {"jax": ("jax", "jaxlib"), "llvm": ("llvmlite", "numba", *(f"tinyxla.{x}" for x in _COMPILER))}
_OF_COMPILED = {"kernels", "report", "stages"}  # attributes of compiled programs that say what was compiled
_IMPORTING = {"importorskip", "import_module"}


def is_in(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of these packages, or in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@cache
def names_using(marker: str, path: Path) -> frozenset[str]:
    """The names at the top of a module whose definition uses the packages of a marker; "*" if all of its tests do."""
    module = _Module(marker, path)
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        module.read(statement)
    return module.using()


class _Module:
    def __init__(self, marker: str, path: Path) -> None:
        self.marker, self.path = marker, path
        self.imported: set[str] = set()
        self.direct: set[str] = set()
        self.uses = defaultdict[str, set[str]](set)  # of other names, by each name

    def read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import() | ast.ImportFrom():
                self.imported.update(x.asname or x.name.partition(".")[0] for x in statement.names)
                self.direct.update(self.bound(statement))
            case ast.FunctionDef() | ast.ClassDef():
                self.define([statement.name], statement)
                if any("autouse=True" in ast.unparse(x) for x in statement.decorator_list):
                    self.uses["*"].add(statement.name)
                self.define((x.id for x in map(_root, statement.decorator_list) if x is not None), statement)
            case ast.If() | ast.Try() | ast.With() | ast.For():
                for inner in ast.iter_child_nodes(statement):
                    if isinstance(inner, ast.stmt):
                        self.read(inner)
                self.define(_assigned(statement), statement)
            case ast.Expr(ast.Call() as call):
                root = _root(call)
                skips = root is not None and root.id == "pytest"  # a call for the whole module
                self.define(["*"] if skips else [root.id] if root is not None else [], statement)
            case _:
                self.define(_assigned(statement), statement)

    def define(self, names: Iterable[str], node: ast.AST) -> None:
        names = set(names) - self.imported
        is_direct = any(map(self.imports, ast.walk(node)))
        used = set(_used(node))
        for name in names:
            self.uses[name] |= used
            if is_direct:
                self.direct.add(name)

    def using(self) -> frozenset[str]:
        found = set(self.direct)
        while more := {name for name, used in self.uses.items() if name not in found and used & found}:
            found |= more
        return frozenset(found)

    def imports(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return bool(self.bound(node))
        if self.marker == "llvm" and isinstance(node, ast.Constant | ast.Attribute):
            return node.value == "numba" if isinstance(node, ast.Constant) else node.attr in _OF_COMPILED
        is_call = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _IMPORTING
        if not is_call or not node.args:
            return False
        first = next((x.value for x in ast.walk(node.args[0]) if isinstance(x, ast.Constant)), "")
        return isinstance(first, str) and is_in(first.rstrip("."), PACKAGES[self.marker])

    def bound(self, statement: ast.Import | ast.ImportFrom) -> set[str]:
        """The names that an import binds to the packages, or to what uses them."""
        if isinstance(statement, ast.Import):
            found = [x for x in statement.names if is_in(x.name, PACKAGES[self.marker])]
            return {x.asname or x.name.partition(".")[0] for x in found}
        module = statement.module or ""
        if statement.level:
            folder = self.path.parents[statement.level - 1]
            module = ".".join([*folder.relative_to(ROOT).parts, *filter(None, [module])])
        return {x.asname or x.name for x in statement.names if self.is_using(module, x.name)}

    def is_using(self, module: str, name: str) -> bool:
        if module.partition(".")[0] != "tests":
            return is_in(f"{module}.{name}", PACKAGES[self.marker])
        path = ROOT.joinpath(*module.split("."))
        if path.with_suffix(".py").exists():
            return name in names_using(self.marker, path.with_suffix(".py"))
        inner = path / f"{name}.py"
        return inner.exists() and bool(names_using(self.marker, inner))


def _root(node: ast.AST | None) -> ast.Name | None:
    """The first name of `a.b(c)[d]`."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node if isinstance(node, ast.Name) else None


def _assigned(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        targets = getattr(inner, "targets", None) or [getattr(inner, "target", None)]
        if isinstance(inner, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                yield from (root.id for part in parts if (root := _root(part)) is not None)


def _used(node: ast.AST) -> Iterator[str]:
    """Names that are read, and parameters, which may be fixtures; types that are only said are not used."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
        return
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("usefixtures"):
        yield from (x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str))
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST):
                yield from _used(inner)
