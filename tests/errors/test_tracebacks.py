"""Tracebacks end at the user's line: frames of the library are filtered, wherever an error is displayed, unless the
option `traceback_filtering` says otherwise.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support import ROOT
from tinyxla import lax
from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.tracing.config import setting

tnp = tx.numpy
X = tnp.ones(3)


def fails(*args: Any) -> Any:
    raise KeyError("of the user")


def mismatched(x: Any) -> Any:
    return x + np.ones(4, np.float32)


def files(error: BaseException) -> list[str]:
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]


def in_custom_jvp(f: Any) -> Any:
    made = tx.custom_jvp(f)
    made.defjvps(None)
    return made(X)


def in_custom_vjp(f: Any) -> Any:
    made = tx.custom_vjp(f)
    made.defvjp(f, f)
    return made(X)


CALLS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "jit": lambda f: tx.jit(f)(X),
    "lower": lambda f: tx.jit(f).lower(X),
    "grad": lambda f: tx.grad(f)(1.0),
    "value_and_grad": lambda f: tx.value_and_grad(f)(1.0),
    "jvp": lambda f: tx.jvp(f, (X,), (X,)),
    "vjp": lambda f: tx.vjp(f, X),
    "linearize": lambda f: tx.linearize(f, X),
    "jacfwd": lambda f: tx.jacfwd(f)(X),
    "jacrev": lambda f: tx.jacrev(f)(X),
    "hessian": lambda f: tx.hessian(f)(X),
    "vmap": lambda f: tx.vmap(f)(X),
    "checkpoint": lambda f: tx.grad(tx.checkpoint(f))(1.0),
    "eval_shape": lambda f: tx.eval_shape(f, X),
    "make_jaxpr": lambda f: tx.make_jaxpr(f)(X),
    "custom_jvp": in_custom_jvp,
    "custom_vjp": in_custom_vjp,
    "cond": lambda f: lax.cond(True, f, f, X),
    "while_loop": lambda f: lax.while_loop(f, f, X),
    "fori_loop": lambda f: lax.fori_loop(0, 3, f, X),
    "scan": lambda f: lax.scan(f, X, X),
    "map": lambda f: lax.map(f, X),
    "associative_scan": lambda f: lax.associative_scan(f, X),
    "vectorize": lambda f: tnp.vectorize(f)(X),
    "tree_map": lambda f: tx.tree_util.tree_map(f, [X]),
    "apply_along_axis": lambda f: tnp.apply_along_axis(f, 0, X),
    "nested": lambda f: tx.jit(lambda x: tx.grad(lambda y: lax.cond(True, f, f, y))(x))(1.0),
    "disable_jit": lambda f: tx.jit(f)(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_of_the_users_function_have_frames_of_the_user_alone(name: str) -> None:
    with pytest.raises(KeyError, match="of the user") as caught:
        CALLS[name](fails)
    assert set(files(caught.value)) == {Path(__file__).name}
    trace = caught.value.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    assert trace is not None
    assert trace.tb_frame.f_code.co_name == "fails"


@pytest.mark.parametrize("name", ["jit", "grad", "vmap", "cond", "vectorize", "nested"])
def test_errors_of_the_library_end_at_the_users_line(name: str) -> None:
    with pytest.raises(ShapeError) as caught:
        CALLS[name](lambda x: tnp.sum(mismatched(tnp.stack([x, x, x]))))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert {Path(frame.filename).name for frame in frames} == {Path(__file__).name}
    assert frames[-1].name == "mismatched"


def test_print_exc_in_a_handler_shows_the_users_frames_of_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        mismatched(X)
    except ShapeError:
        traceback.print_exc()
    shown = capsys.readouterr().err
    assert "in mismatched" in shown
    assert "definitions.py" not in shown
    assert "array.py" not in shown


def test_off_shows_the_frames_of_the_library() -> None:
    with setting("traceback_filtering", "off"), pytest.raises(KeyError) as caught:
        tx.jit(fails)(X)
    assert "jit.py" in files(caught.value)
    with setting("traceback_filtering", "off"), pytest.raises(ShapeError) as caught_too:
        mismatched(X)
    with setting("traceback_filtering", "off"):
        assert "definitions.py" in files(caught_too.value)


def test_remove_frames_adds_one_note() -> None:
    with setting("traceback_filtering", "remove_frames"), pytest.raises(KeyError) as caught:
        tx.jit(tx.jit(fails))(X)
    assert len(caught.value.__notes__) == 1
    assert "traceback_filtering" in caught.value.__notes__[0]


def test_tracebackhide_marks_the_frames_of_the_library() -> None:
    with setting("traceback_filtering", "tracebackhide"), pytest.raises(KeyError) as caught:
        tx.jit(fails)(X)
    trace = caught.value.__traceback__
    hidden = {True: set[str](), False: set[str]()}
    while trace:
        marked = bool(trace.tb_frame.f_locals.get("__tracebackhide__"))
        hidden[marked].add(Path(trace.tb_frame.f_code.co_filename).name)
        trace = trace.tb_next
    assert hidden[False] == {Path(__file__).name}
    assert "jit.py" in hidden[True]


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="quiet_remove_frames"):
        tx.config.update("jax_traceback_filtering", "some")


def test_chained_errors_are_filtered_and_internal_ones_left_out() -> None:
    def handles() -> Any:
        try:
            return mismatched(X)
        except ShapeError as error:
            raise RuntimeError("after") from error

    with pytest.raises(RuntimeError) as caught:
        tx.jit(lambda x: handles())(X)
    cause = caught.value.__cause__
    assert cause is not None
    assert set(files(caught.value)) == set(files(cause)) == {Path(__file__).name}


def run(code: str, *command: str, **environment: str) -> str:
    """What a program writes to stderr and stdout."""
    import os

    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    text = textwrap.dedent(code)
    found = subprocess.run([sys.executable, *command, "-c", text], capture_output=True, text=True, env=given, cwd=ROOT)
    return found.stdout + found.stderr


SCRIPT = """
    import tinyxla.numpy as jnp

    def user_function():
        return jnp.concatenate([jnp.ones(3), jnp.ones((2, 2))])

"""


def test_a_script_ends_with_the_users_frame_and_the_text() -> None:
    shown = run(SCRIPT + "    user_function()\n")
    assert "in user_function" in shown
    assert "joining.py" not in shown
    assert "ShapeError: concatenate" in shown
    shown = run(SCRIPT + "    user_function()\n", TINYXLA_TRACEBACK_FILTERING="off")
    assert "joining.py" in shown


def test_a_thread_ends_with_the_users_frame() -> None:
    code = "    import threading\n    t = threading.Thread(target=user_function)\n    t.start()\n    t.join()\n"
    shown = run(SCRIPT + code)
    assert "in user_function" in shown
    assert "joining.py" not in shown
    assert "ShapeError: concatenate" in shown


def test_hooks_of_the_user_are_called() -> None:
    code = "    import sys\n    sys.excepthook = lambda *a: print('mine', a[0].__name__)\n    user_function()\n"
    assert "mine ShapeError" in run(SCRIPT + code)


def test_ipython_ends_with_the_users_frame() -> None:
    pytest.importorskip("IPython")
    code = """
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_cell("import tinyxla.numpy as jnp")
    shell.run_cell("def user_function():\\n    return jnp.concatenate([jnp.ones(3), jnp.ones((2, 2))])")
    shell.run_cell("user_function()")
    shell.run_cell("import tinyxla as tx; tx.jit(lambda x: {}['missing'])(1.0)")
    """
    shown = run(code, IPYTHONDIR="/tmp/tinyxla-ipython")
    assert "ShapeError" in shown
    assert "KeyError" in shown
    assert "joining.py" not in shown
    assert "jit.py" not in shown


def test_pytest_shows_the_users_frame(tmp_path: Path) -> None:
    test = tmp_path / "test_of_a_user.py"
    test.write_text(textwrap.dedent(SCRIPT) + "def test():\n    user_function()\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    assert "def user_function" in shown
    assert "joining.py" not in shown
