"""Which tests use JAX: a use analysis of the source of test modules, over the names at their top.

A test uses JAX if its function, its decorators, or a fixture, function or table that it names do so, in its own module
or in another one of the tests. So the marker `jax` needs no list. What a program in a string imports is not seen: such
a test is marked by hand.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.support import ROOT

PACKAGES = {"jax", "jaxlib"}
_IMPORTING = {"importorskip", "import_module"}


@cache
def names_using_jax(path: Path) -> frozenset[str]:
    """The names at the top of a module whose definition uses JAX; "*" if all of its tests do."""
    module = _Module(path)
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        module.read(statement)
    return module.using()


class _Module:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.direct: set[str] = set()
        self.uses = defaultdict[str, set[str]](set)  # of other names, by each name

    def read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import() | ast.ImportFrom():
                self.direct.update(_bound_to_jax(statement, self.path))
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
        names = list(names)
        is_direct = any(_imports_jax(x, self.path) for x in ast.walk(node))
        used = set(_used(node))
        for name in names:
            self.uses[name] |= used
            if is_direct:
                self.direct.add(name)

    def using(self) -> frozenset[str]:
        self.uses.pop("pytest", None)
        found = set(self.direct)
        while more := {name for name, used in self.uses.items() if name not in found and used & found}:
            found |= more
        return frozenset(found)


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
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST):
                yield from _used(inner)


def _imports_jax(node: ast.AST, path: Path) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return bool(_bound_to_jax(node, path))
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in _IMPORTING or not node.args:
        return False
    first = next((x.value for x in ast.walk(node.args[0]) if isinstance(x, ast.Constant)), "")
    return isinstance(first, str) and first.partition(".")[0] in PACKAGES


def _bound_to_jax(statement: ast.Import | ast.ImportFrom, path: Path) -> set[str]:
    """The names that an import binds to JAX, or to what uses it."""
    if isinstance(statement, ast.Import):
        found = [x for x in statement.names if x.name.partition(".")[0] in PACKAGES]
        return {x.asname or x.name.partition(".")[0] for x in found}
    module = statement.module or ""
    if statement.level:
        folder = path.parents[statement.level - 1]
        module = ".".join([*folder.relative_to(ROOT).parts, *filter(None, [module])])
    if module.partition(".")[0] in PACKAGES:
        return {x.asname or x.name for x in statement.names}
    if module.partition(".")[0] != "tests":
        return set()
    return {x.asname or x.name for x in statement.names if _is_of_jax(ROOT.joinpath(*module.split(".")), x.name)}


def _is_of_jax(module: Path, name: str) -> bool:
    if module.with_suffix(".py").exists():
        return name in names_using_jax(module.with_suffix(".py"))
    inner = module / f"{name}.py"
    return inner.exists() and bool(names_using_jax(inner))
