"""`python -m tinyxla.jax script.py arguments` or `python -m tinyxla.jax -m module arguments`."""

import os
import runpy
import sys

USAGE = "usage: python -m tinyxla.jax (script.py | -m module | -c code) [arguments ...]"


def main(arguments: list[str]) -> None:
    """Run a script, module or code as `python` does, with `jax` standing for tinyxla."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    first, *rest = arguments
    if first in ("-m", "-c"):
        if not rest:
            sys.exit(f"{USAGE}\n{first} takes an argument")
        sys.argv = [first, *rest[1:]]
        sys.path[0] = os.getcwd() if first == "-m" else ""
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        return
    sys.argv = [first, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(first))
    runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
