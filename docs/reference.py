"""The pages of the reference: what each public module has, from signatures and docstrings.

`write(target)` makes a page in MyST's Markdown for each module, and for each family of the large ones. Docstrings are
text with sections (`Args:`, `Returns:`, `Raises:`, `Example:`), names in single backticks and examples after `>>>`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = """
tinyxla tinyxla.numpy tinyxla.numpy.linalg tinyxla.numpy.fft tinyxla.lax tinyxla.lax.linalg tinyxla.random tinyxla.nn
tinyxla.nn.initializers tinyxla.tree tinyxla.tree_util tinyxla.scipy.special tinyxla.scipy.linalg tinyxla.scipy.stats
tinyxla.scipy.optimize tinyxla.scipy.signal tinyxla.scipy.interpolate tinyxla.scipy.ndimage tinyxla.scipy.fft
tinyxla.scipy.integrate tinyxla.scipy.sparse.linalg tinyxla.scipy.spatial.transform tinyxla.scipy.cluster.vq
tinyxla.image tinyxla.ops tinyxla.sharding tinyxla.distributed tinyxla.distributed.scaling tinyxla.dtypes
tinyxla.flatten_util tinyxla.ad_checkpoint tinyxla.checkpoint_policies tinyxla.custom_batching
tinyxla.custom_derivatives tinyxla.kernels tinyxla.debug tinyxla.profiler tinyxla.cache tinyxla.stages tinyxla.text
tinyxla.stablehlo tinyxla.xla tinyxla.ffi tinyxla.errors tinyxla.typing tinyxla.core tinyxla.test_util
tinyxla.experimental tinyxla.experimental.checkify tinyxla.experimental.custom_partitioning
tinyxla.experimental.jet tinyxla.experimental.mesh_utils
tinyxla.experimental.multihost_utils tinyxla.experimental.ode tinyxla.experimental.rnn tinyxla.experimental.sparse
tinyxla.example_libraries.stax tinyxla.example_libraries.optimizers tinyxla.export
""".split()
FAMILIES_FROM = 150  # names; a larger module has a page for each file that defines some of them
SMALLEST_FAMILY = 8  # names; smaller ones share a page
SECTIONS = {
    "Args": "Arguments",
    "Arguments": "Arguments",
    "Attributes": "Attributes",
    "Example": "Example",
    "Examples": "Example",
    "Raises": "Raises",
    "Returns": "Returns",
    "Source": "Source",
    "Yields": "Yields",
}
SECTION = re.compile(rf"^({'|'.join(SECTIONS)}):[ ]*$")
ENTRY = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): (.*)$")
CODE = re.compile(r"(`+[^`]+`+)")


@dataclass(frozen=True)
class Item:
    """A public name: where users find it, and what it is."""

    module: str
    name: str
    value: Any

    @property
    def summary(self) -> str:
        paragraph = documentation(self.value).partition("\n\n")[0]
        return escape(" ".join(paragraph.split()))

    @property
    def family(self) -> str:
        return str(getattr(self.value, "__module__", None) or "").rpartition(".")[2]


def documentation(value: Any) -> str:
    """A docstring that belongs to the object: not that of a built-in type it is an instance of."""
    if not is_documented(value):
        return ""
    return inspect.getdoc(value) or ""


def is_documented(value: Any) -> bool:
    if inspect.isclass(value) or inspect.isroutine(value):
        return True
    return str(type(value).__module__).startswith("tinyxla")


# --- names ------------------------------------------------------------------------------------------------------------


def public_items(module: ModuleType) -> list[Item]:
    """What a module has for its users: `__all__`, or without it what the library defines there."""
    names = getattr(module, "__all__", None)
    found = [Item(module.__name__, name, getattr(module, name)) for name in sorted(names or dir(module), key=str.lower)]
    return [item for item in found if not inspect.ismodule(item.value) and (names or is_own(item, module))]


def is_own(item: Item, module: ModuleType) -> bool:
    if item.name.startswith("_") or not (callable(item.value) or documentation(item.value)):
        return False
    defined = str(getattr(item.value, "__module__", None) or type(item.value).__module__)
    if hasattr(module, "__path__") or hasattr(counterpart(module.__name__), item.name):
        return defined.startswith("tinyxla")
    return defined == module.__name__


def counterpart(name: str) -> ModuleType | None:
    """NumPy's or SciPy's module of the same name: what it has is public, wherever it is defined here."""
    if not name.startswith(("tinyxla.numpy", "tinyxla.scipy")):
        return None
    try:
        return importlib.import_module(name.removeprefix("tinyxla."))
    except ModuleNotFoundError:
        return None


# --- docstrings as Markdown -------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Plain text as Markdown; what stands in backticks stays."""
    parts = CODE.split(text)
    return "".join(part if part[:1] == "`" else re.sub(r"([\\*_<>\[\]$|{}#])", r"\\\1", part) for part in parts)


def markdown(docstring: str) -> str:
    lines: list[str] = []
    for title, body in sections(docstring):
        if title:
            lines += [f"**{title}**", ""]
        lines += list(entries(body)) if title in ("Arguments", "Attributes", "Raises") else list(paragraphs(body))
        lines.append("")
    return "\n".join(lines).strip()


def sections(docstring: str) -> Iterator[tuple[str, list[str]]]:
    """The parts of a docstring with their titles; the first one has none."""
    title, body = "", list[str]()
    for line in docstring.splitlines():
        found = SECTION.match(line)
        if found:
            yield title, body
            title, body = SECTIONS[found[1]], []
        else:
            body.append(line)
    yield title, body


def entries(body: list[str]) -> Iterator[str]:
    """Lines `name: text`, with further lines indented, as a list. What is not indented is text again."""
    inside = [line[4:] for line in body if line.startswith("    ")]
    for line in inside:
        found = ENTRY.match(line)
        if found:
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            yield f"- {names}: {escape(found[2])}"
        else:
            yield f"  {escape(line.strip())}"
    yield ""
    yield from paragraphs([line for line in body if line.strip() and not line.startswith("    ")])


def paragraphs(body: list[str]) -> Iterator[str]:
    """Text, and examples in fences."""
    lines = inspect.cleandoc("\n".join(body)).splitlines()
    k = 0
    while k < len(lines):
        if lines[k].lstrip().startswith(">>>"):
            end = next((j for j in range(k, len(lines)) if not lines[j].strip()), len(lines))
            yield from ("", "```pycon", *inspect.cleandoc("\n".join(lines[k:end])).splitlines(), "```", "")
            k = end
        elif lines[k].startswith("    ") and (k == 0 or not lines[k - 1].strip()):
            end = next((j for j in range(k, len(lines)) if lines[j].strip() and lines[j][0] != " "), len(lines))
            yield from ("```text", *inspect.cleandoc("\n".join(lines[k:end])).splitlines(), "```", "")
            k = end
        else:
            bullet = re.match(r"^( *[-*] )(.*)$", lines[k])
            yield bullet[1] + escape(bullet[2]) if bullet else escape(lines[k])
            k += 1


# --- pages ------------------------------------------------------------------------------------------------------------


def signature(value: Any) -> str:
    """The parameters in parentheses; empty for what has none that Python knows."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(*args)"
    text = re.sub(r"<[^<>]*?(\w+)[^<>]*>", r"\1", text)  # defaults without a source text
    return re.sub(r": '([^']*)'", r": \1", re.sub(r"-> '([^']*)'", r"-> \1", text)).replace("\n", " ")


def describe(item: Item, level: int = 3) -> str:
    """The directive that documents a name, with its methods if it is a class."""
    fence = ":" * (level + 3)
    kind, head, inner = "function", f"{item.name}{signature(item.value)}", ""
    if inspect.isclass(item.value):
        kind, inner = "class", "\n\n".join(methods(item, level - 1))
        head = head.removesuffix(" -> None")
    elif not callable(item.value) or "tinyxla" not in str(type(item.value).__module__) + str(
        getattr(item.value, "__module__", "")
    ):
        kind, head = "data", item.name
    return f"{fence}{{py:{kind}}} {head}\n\n{markdown(documentation(item.value))}\n\n{inner}\n{fence}"


def methods(item: Item, level: int) -> Iterator[str]:
    if issubclass(item.value, BaseException):
        return
    fence = ":" * (level + 3)
    for name, member in sorted(vars(item.value).items()):
        function = getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isroutine(function) or not inspect.getdoc(function):
            continue
        head = re.sub(r"^\((self|cls|array)(: \w+)?(, |(?=\)))", "(", signature(function))
        yield f"{fence}{{py:method}} {name}{head}\n\n{markdown(inspect.getdoc(function) or '')}\n{fence}"


def page(module: ModuleType, title: str, items: list[Item]) -> str:
    name = module.__name__
    about = markdown(inspect.getdoc(module) or "") if title == name else f"Part of {{py:mod}}`{name}`."
    rows = [f"| {{py:obj}}`{item.name} <{name}.{item.name}>` | {item.summary} |" for item in items]
    table = ["| | |", "|---|---|", *rows] if rows else []
    declared = "py:module" if title == name else "py:currentmodule"
    start = [f"# {title}", "", f"```{{{declared}}} {name}", "```", "", about, "", *table, ""]
    return "\n".join([*start, *(describe(item) + "\n" for item in items)])


def families(module: ModuleType, items: list[Item]) -> dict[str, list[Item]]:
    """Names by the file that defines them; small families and what is defined elsewhere are the module's own page."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.family, []).append(item)
    large = {name: group for name, group in groups.items() if len(group) >= SMALLEST_FAMILY and name}
    if len(items) < FAMILIES_FROM or len(large) < 2:
        return {"": items}
    rest = [item for item in items if item.family not in large]
    return {"": rest} | dict(sorted(large.items()))


def write(target: Path) -> None:
    """Write all pages and their index; files that stay as they are keep their times, so that builds are incremental."""
    pages: dict[str, str] = {}
    contents: list[str] = []
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
            continue
        for family, items in families(module, public_items(module)).items():
            title = f"{name}: {family.replace('_', ' ')}" if family else name
            file = f"{name}-{family}".rstrip("-")
            contents.append(file)
            pages[file] = page(module, title, items)
    listing = "\n".join(contents)
    pages["index"] = (
        "# Reference\n\nEvery public module, from its docstrings. Functions under names of NumPy, SciPy and JAX take "
        f"what they take there, unless it says otherwise.\n\n```{{toctree}}\n:maxdepth: 1\n\n{listing}\n```\n"
    )
    target.mkdir(exist_ok=True)
    for old in target.glob("*.md"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = target / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
