"""Wrong calls of `scipy`, `lax` and `random`: typed errors that name the function, the value and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.scipy as scipy
from tinyxla import export, stablehlo, text, xla
from tinyxla.distributed import scaling
from tinyxla.errors import ArgumentError, NumberRangeError, TinyxlaError

tnp, lax, random = tx.numpy, tx.lax, tx.random

V, M, S = tnp.arange(3.0), tnp.ones((2, 3)), tnp.eye(2)
ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
FIRST = tnp.array([[0]])
NAMES = {
    "scipy": scipy,
    "lax": lax,
    "random": random,
    "tnp": tnp,
    "np": np,
    "V": V,
    "M": M,
    "S": S,
    "ROWS": ROWS,
    "FIRST": FIRST,
    "KEY": random.key(0),
}

# Calls, and the beginning of the text.
WRONG: dict[str, str] = {
    # The text begins with the function that is called, also where an inner one finds the mistake.
    "scipy.signal.detrend(V, axis=3)": r"scipy\.signal\.detrend: .*axis 3 is out of range",
    "scipy.linalg.cho_factor(V)": r"scipy\.linalg\.cho_factor: .*square matrices, but got f32\[3\]",
    "scipy.signal.welch(V, axis=4)": r"scipy\.signal\.welch: .*axis 4",
    "scipy.linalg.det(2**70)": r"scipy\.linalg\.det: The Python integer",
    "random.normal(KEY, (3,), 'foo')": r"random\.normal: 'foo' is not an element type",
    "lax.full((2,), 1, 'foo')": r"lax\.full: 'foo' is not an element type",
    "scipy.fft.dctn(V, axes=(4,))": r"scipy\.fft\.dctn: axis 4",
    "tnp.sum(V, 'no such')": r"sum: an axis is an integer, but got 'no such'",
    # Values that have no meaning.
    "scipy.fft.dct(V, n=0)": r"scipy\.fft\.dct: the lengths must be positive",
    "scipy.fft.dctn(M, axes=(0, 0))": r"scipy\.fft\.dctn: the axes \(0, 0\) name a dimension twice",
    "scipy.fft.dct(V, n=10**13)": r"scipy\.fft\.dct: no memory can hold",
    "scipy.ndimage.map_coordinates(V, None, 1)": r"scipy\.ndimage\.map_coordinates: coordinates must be a sequence",
    "scipy.ndimage.map_coordinates(V, [V], np.ones(2))": r"scipy\.ndimage\.map_coordinates: order is an integer",
    "scipy.ndimage.map_coordinates(V, [V], 1, mode=['wrap'])": r"scipy\.ndimage\.map_coordinates: mode must be one of",
    "scipy.ndimage.map_coordinates(V, [V], 1, cval=1j)": r"scipy\.ndimage\.map_coordinates: cval must be a number",
    "scipy.special.bernoulli(10**13)": r"scipy\.special\.bernoulli: no memory can hold",
    "scipy.special.entr(1j)": r"scipy\.special\.entr: takes real numbers",
    "scipy.special.kl_div(1j, 1.0)": r"scipy\.special\.kl_div: takes real numbers",
    "scipy.special.rel_entr(1j, 1.0)": r"scipy\.special\.rel_entr: takes real numbers",
    "scipy.stats.expon.logpdf(1j)": r"scipy\.stats\.expon: takes real numbers",
    "scipy.signal.stft(V, fs=1j)": r"scipy\.signal\.stft: fs must be a real number",
    "lax.reduce_and(V, (0,))": r"lax\.reduce_and: takes integers and booleans, but got f32\[3\]",
    "lax.reduce_xor(V, (0,))": r"lax\.reduce_xor: takes integers and booleans, but got f32\[3\]",
    "lax.scatter_add(V, FIRST, M[:1], ROWS, mode='clip')": r"lax\.scatter_add: update_window_dims \(1,\)",
    "lax.scatter(M, FIRST, V, ROWS, mode='clip')": r"lax\.scatter: update_window_dims \(1,\)",
    "lax.scatter(M, FIRST, M[:1], ROWS, mode=())": r"a mode is 'clip', 'fill', 'drop' or .*, but got \(\)",
    "lax.gather(V, FIRST, lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode=())": r"lax\.gather: a mode is 'clip'",
    "lax.reduce_window_shape_tuple(None, (1,), (1,), 'VALID')": r"lax\.reduce_window_shape_tuple: operand_shape",
    "lax.shape_as_value(3.5)": r"lax\.shape_as_value: a size is an integer",
    "lax.switch(0, np.array(1.5))": r"lax\.switch takes a list of functions",
    "lax.scan(lambda c, x: (c, x), 0, V, unroll=int)": r"lax\.scan: unroll is an integer",
    "lax.composite(lambda x: x, 3)": r"lax\.composite: name must be text",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_call_raises_an_error_that_names_the_function(call: str) -> None:
    with pytest.raises(TinyxlaError) as found:
        eval(call, NAMES)
    found.match("^" + WRONG[call])
    assert isinstance(found.value, ValueError)
    assert isinstance(found.value, TypeError | MemoryError)


# Calls with a flag, and its name.
FLAGS: dict[str, str] = {
    "scipy.linalg.cholesky(S, FLAG)": "lower",
    "scipy.linalg.cho_factor(S, lower=FLAG)": "lower",
    "scipy.linalg.eigh(S, eigvals_only=FLAG)": "eigvals_only",
    "scipy.linalg.expm(S, upper_triangular=FLAG)": "upper_triangular",
    "scipy.linalg.lu(S, FLAG)": "permute_l",
    "scipy.linalg.solve(S, S, FLAG)": "lower",
    "scipy.linalg.svd(S, compute_uv=FLAG)": "compute_uv",
    "scipy.special.comb(4, 2, repetition=FLAG)": "repetition",
    "scipy.special.logsumexp(V, keepdims=FLAG)": "keepdims",
    "scipy.stats.sem(V, keepdims=FLAG)": "keepdims",
    "scipy.stats.mode(V, keepdims=FLAG)": "keepdims",
    "lax.cumsum(V, reverse=FLAG)": "reverse",
    "lax.scan(lambda c, x: (c, x), 0, V, reverse=FLAG)": "reverse",
    "lax.sort(V, is_stable=FLAG)": "is_stable",
    "lax.associative_scan(lax.add, V, FLAG)": "reverse",
    "lax.index_in_dim(V, 1, keepdims=FLAG)": "keepdims",
    "lax.dynamic_index_in_dim(V, 1, keepdims=FLAG)": "keepdims",
    "lax.linalg.qr(S, full_matrices=FLAG)": "full_matrices",
    "random.choice(KEY, V, (2,), FLAG)": "replace",
    "random.permutation(KEY, V, independent=FLAG)": "independent",
    "tnp.linalg.svd(S, FLAG)": "full_matrices",
}


@pytest.mark.parametrize("call", FLAGS)
def test_flag_takes_booleans_and_integers_alone(call: str) -> None:
    wrong: Any
    for wrong in ("no", [1], {"a": 1}, np.ones(2), tnp.ones(2), 0.5, len):
        with pytest.raises(ArgumentError, match=rf"{FLAGS[call]} must be True or False, but got"):
            eval(call, {**NAMES, "FLAG": wrong})
    for value in (True, np.True_, 1, tnp.array(True)):
        found, expected = (eval(call, {**NAMES, "FLAG": flag}) for flag in (value, True))
        assert tx.tree_util.tree_structure(found) == tx.tree_util.tree_structure(expected)


def test_number_outside_the_range_of_a_type_is_caught_as_numpy_and_lax_raise_it() -> None:
    x = tnp.zeros(2, np.uint8)
    for kind in (OverflowError, TypeError, ValueError):
        with pytest.raises(kind) as found:
            lax.add(x, -5)
        assert isinstance(found.value, NumberRangeError)


def test_functions_of_users_are_not_named() -> None:
    def function(x: Any) -> Any:
        return x + tnp.ones(4)

    with pytest.raises(TinyxlaError, match=r"^add: Incompatible shapes for broadcasting: \(3,\) and \(4,\)"):
        tx.jit(function)(V)


THREE: Any = 3
WRONG_KINDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "closure_convert": ("takes a function", lambda: tx.closure_convert(THREE, 1.0)),
    "custom_gradient": ("takes a function", lambda: tx.custom_gradient(THREE)),
    "named_call": ("takes a function", lambda: tx.named_call(THREE)),
    "print_saved_residuals": ("takes a function", lambda: tx.ad_checkpoint.print_saved_residuals(THREE)),
    "set_mesh": ("takes a mesh", lambda: tx.set_mesh(THREE)),
    "process_index": ("Unknown backend 3", lambda: tx.process_index(THREE)),
    "process_count": ("Unknown backend 3", lambda: tx.process_count(THREE)),
    "process_indices": ("Unknown backend 3", lambda: tx.process_indices(THREE)),
    "savez": ("arr_0 names an array without a name, too", lambda: tnp.savez("", V, arr_0=V)),
    "after_all": ("takes tokens", lambda: lax.after_all(THREE)),
    "max_dim": ("max_dim takes sizes", lambda: tx.core.max_dim(1, "b")),
    "scaling.predict": ("takes a lowered function", lambda: scaling.predict(THREE, THREE, THREE)),
    "debug.breakpoint": ("stdout must be a file or None", lambda: tx.debug.breakpoint(stdout=THREE)),
    "annotate_function": ("takes a function", lambda: tx.profiler.annotate_function(THREE)),
    "annotate_function's name": ("must be a text", lambda: tx.profiler.annotate_function(len, THREE)),
    "print_module": ("takes a module", lambda: text.print_module(THREE)),
    "to_dot": ("to_dot: takes a computation", lambda: text.to_dot(THREE)),
    "to_svg": ("to_svg: takes a computation", lambda: text.to_svg(THREE)),
    "register_composite": ("takes a function", lambda: stablehlo.register_composite("a", THREE)),
    "register_custom_call": ("must be a text", lambda: stablehlo.register_custom_call(THREE, len)),
    "Array.tobytes": ("order must be 'C', 'F', 'A' or 'K', but got 'Q'", lambda: V.tobytes("Q")),
    "Machine.bound": ("takes a Cost", lambda: tx.profiler.Machine(1, ((0, 1.0),), 1.0, 1.0).bound(THREE)),
    "Compiled.as_text": ("machine must be one", lambda: tx.jit(tnp.sin).lower(V).compile().as_text(THREE)),
    "DisabledSafetyCheck": ("must be a text", lambda: export.DisabledSafetyCheck.custom_call(THREE)),
    "custom_jvp.defjvps": ("takes a function", lambda: tx.custom_jvp(len).defjvps(THREE)),
    "custom_vmap.def_vmap": ("takes a function", lambda: tx.custom_batching.custom_vmap(len).def_vmap(THREE)),
    "Kernel.defjvp": ("takes a function", lambda: tx.kernel(lambda x, out: None).defjvp(THREE)),
    "Network.seconds": ("takes a Communication", lambda: scaling.Network(1.0, 1.0).seconds(THREE)),
    "Processor.seconds": ("takes a Cost", lambda: scaling.Processor(1.0, 1.0, 1.0).seconds(THREE, 1)),
    "make_padding_config": ("must have 3 elements", lambda: xla.make_padding_config([(1, 2)])),
    "save_only_these_names": ("a name is a text", lambda: tx.checkpoint_policies.save_only_these_names(THREE)),
    "save_any_names_but_these": ("a name is a text", lambda: tx.checkpoint_policies.save_any_names_but_these(THREE)),
    "save_from_both_policies": ("a function", lambda: tx.checkpoint_policies.save_from_both_policies(THREE, THREE)),
    "save_and_offload_only_these_names": (
        "names must be a list of texts, but got 'abc'",
        lambda: tx.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved="abc", names_which_can_be_offloaded=[], offload_src="a", offload_dst="b"
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_argument_of_another_kind_gets_a_typed_error(name: str) -> None:
    message, function = WRONG_KINDS[name]
    with pytest.raises(TinyxlaError, match=message):
        function()
