"""Runs the programs of one file and writes their results and times, in a process of its own: with JAX, or with
`python -m tinyxla.jax` in front."""

import importlib.util
import pickle
import sys
import time
import traceback

import numpy as np


def main(path: str, output: str, runs: str = "2") -> None:
    """Run every function of `PROGRAMS` in a file so many times; the second run is timed as the steady one."""
    began = time.perf_counter()
    spec = importlib.util.spec_from_file_location("programs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import jax

    found = {
        "version": jax.__version__,
        "by": jax.jit.__module__,
        "import": time.perf_counter() - began,
        "programs": {},
    }
    for program in module.PROGRAMS:
        times, result, error = [], None, None
        for _ in range(int(runs)):
            started = time.perf_counter()
            try:
                leaves = jax.tree.leaves(program())
                result = [np.asarray(x) for x in leaves]
            except Exception:
                error = traceback.format_exc()
            times.append(time.perf_counter() - started)
        found["programs"][program.__name__] = {"result": result, "error": error, "times": times}
    with open(output, "wb") as file:
        pickle.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
