"""`python -m tinyxla.jax script.py arguments`, `-m module`, `-c code`, or `-` for a script from the standard input."""

from __future__ import annotations

import io
import os
import runpy
import sys
import zipfile
from types import ModuleType, TracebackType
from typing import Any

USAGE = "usage: python -m tinyxla.jax (script.py | - | -m module | -c code) [arguments ...]"


def main(arguments: list[str]) -> None:
    """Run a script, module or code as `python` does, with `jax` standing for tinyxla."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    first, *rest = arguments
    sys.excepthook = _print_error
    if first in ("-m", "-c"):
        if not rest:
            sys.exit(f"{USAGE}\n{first} takes an argument")
        sys.argv = [first, *rest[1:]]
        sys.path[0] = os.getcwd() if first == "-m" else ""
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            _run(rest[0], "<string>")
        return
    sys.argv = [first, *rest]
    if first == "-":
        sys.path[0] = ""
        _run(sys.stdin.buffer.read(), "<stdin>", __file__="<stdin>")
        return
    path = os.path.abspath(first)
    sys.path[0] = os.path.dirname(path)
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        runpy.run_path(first, run_name="__main__")
        return
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        print(f"{USAGE}\ncannot open {path!r}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    _run(source, path, __file__=path)


def _run(source: str | bytes, name: str, **attributes: Any) -> None:
    """Run a program as the module `__main__`, with further attributes."""
    module = ModuleType("__main__")
    vars(module).update(attributes, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(source, name, "exec", dont_inherit=True), vars(module))


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the program, without the frames that started it."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main(sys.argv[1:])
