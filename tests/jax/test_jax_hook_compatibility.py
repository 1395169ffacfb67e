"""What packages' own tests ask of `import jax` under the hook: options and flags, devices, private modules, 64-bit
types, random keys among arrays, and functions that are traced once."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.jax.test_jax_hook import lines as printed, run


def test_config_flags_of_the_command_line_set_options(tmp_path: Path) -> None:
    pytest.importorskip("absl")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import jax
        jax.config.parse_flags_with_absl()
        jax.config.parse_flags_with_absl()
        print(jax.config.jax_enable_x64, jax.config.read("jax_disable_jit"), jax.config.values["jax_enable_x64"])
        """)
    )
    found = run("-m", "tinyxla.jax", str(program), "--jax_enable_x64=true", "--other=3", "--", "--jax_disable_jit=true")
    assert found.stdout.split() == ["True", "False", "True"]


def test_config_flags_are_read_by_absl_app(tmp_path: Path) -> None:
    pytest.importorskip("absl")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import jax
        from absl import app
        jax.config.config_with_absl()
        app.run(lambda argv: print(jax.config.jax_numpy_rank_promotion, argv[1:]))
        """)
    )
    found = run("-m", "tinyxla.jax", str(program), "--jax_numpy_rank_promotion=raise", "rest")
    assert found.stdout.strip() == "raise ['rest']"


def test_64_bit_types_asked_for_by_name_are_narrowed_with_a_warning_unless_x64() -> None:
    lines = printed("""
        import warnings
        import numpy as np, jax, jax.numpy as jnp
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            arrays = [jnp.zeros(2, jnp.float64), jnp.arange(3, dtype="int64"), jnp.ones(2).astype(np.float64)]
            key = jax.random.key(0)
            arrays += [jnp.float64(3), jax.lax.full((2,), 1, np.complex128), jax.random.normal(key, (), float)]
        print(*[x.dtype for x in arrays])
        print(len(seen), all("Explicitly requested dtype" in str(w.message) for w in seen))
        print(jnp.finfo(jnp.float64).bits, jnp.dtype(jnp.int64), jnp.can_cast(np.float64, np.float32))
        with jax.enable_x64(True):
            print(jnp.zeros(2, jnp.float64).dtype)
        jax.config.update("jax_explicit_x64_dtypes", "error")
        try:
            jnp.zeros(2, jnp.float64)
        except TypeError as error:
            print(str(error)[:45])
        jax.config.update("jax_explicit_x64_dtypes", "allow")
        print(jnp.zeros(2, jnp.float64).dtype)
        """)
    assert lines == [
        "float32 int32 float32 float32 complex64 float32",
        "5 True",
        "64 int64 False",
        "float64",
        "numpy.zeros: Explicitly requested dtype float",
        "float64",
    ]


def test_functions_that_compute_in_64_bits_inside_are_unchanged_where_such_types_are_refused() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax import lax
        def values():
            slope = jax.grad(lambda a: lax.igamma(a, 1.0))
            share, drawn = jax.jit(lax.igammac), jax.jit(jax.grad(lambda a: jax.random.gamma(jax.random.key(0), a)))
            floats = float(slope(2.0)), float(jax.jit(slope)(2.0)), float(share(2.0, 1.0)), float(drawn(2.0))
            return *floats, int(lax.mulhi(jnp.int32(1 << 30), jnp.int32(12)))
        jax.config.update("jax_explicit_x64_dtypes", "allow")
        before = values()
        jax.clear_caches()
        jax.config.update("jax_explicit_x64_dtypes", "error")
        print(before == values(), before[-1])
        print(jax.grad(jax.grad(lambda a: jax.random.loggamma(jax.random.key(0), a)))(2.0).dtype)
        """)
    assert lines == ["True 3", "float32"]


def test_devices_that_are_not_there_are_runtime_errors() -> None:
    lines = printed("""
        import jax
        from jax._src import xla_bridge
        for call in (jax.devices, jax.device_count, xla_bridge.get_backend):
            try:
                call("gpu")
            except RuntimeError as error:
                print(type(error).__name__, isinstance(error, ValueError))
        print(xla_bridge.get_backend().platform, xla_bridge.process_index(), [*xla_bridge._backends], jax.devices()[0])
        """)
    assert lines == ["PlatformError False"] * 3 + ["cpu 0 ['cpu'] cpu:0"]


def test_number_of_devices_is_that_of_the_flag_when_devices_are_first_used() -> None:
    lines = printed("""
        import os, jax
        from jax._src import xla_bridge
        for count in (2, 3):
            os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
        print(len(xla_bridge._backends), jax.device_count(), [*xla_bridge._backends])
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
        print(jax.device_count())
        """)
    assert lines == ["0 3 ['cpu']", "3"]


def test_random_keys_are_compared_as_arrays_are() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        keys = jax.random.split(jax.random.key(0), 3)
        print(jnp.isnan(keys), jnp.isfinite(keys), jnp.isclose(keys, keys[::-1]))
        print(jnp.allclose(keys, keys), jnp.array_equal(keys, keys, equal_nan=True))
        try:
            jnp.isclose(keys, 1.0)
        except TypeError:
            print("refused")
        """)
    assert lines == ["[False False False] [ True  True  True] [False  True False]", "True True", "refused"]


def test_partial_evaluation_and_jaxprs_of_functions_of_random_keys() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax.extend import linear_util as lu
        from jax.interpreters import partial_eval as pe
        aval = jax.typeof(jax.random.key(0))
        function = lambda key: [jax.random.fold_in(key, 1), jax.random.uniform(key), jnp.ones(2)]
        jaxpr, values, constants = pe.trace_to_jaxpr_nounits(lu.wrap_init(function), [pe.PartialVal.unknown(aval)])
        print([v.is_known() for v in values], values[0].get_aval().dtype == aval.dtype, values[1].get_aval().shape)
        draw = lambda keys: jax.vmap(jax.random.bits)(keys)
        for keys in (jax.random.split(jax.random.key(0)), jax.random.key(0, impl="rbg")[None]):
            closed = jax.make_jaxpr(draw)(keys)
            print((jax.core.eval_jaxpr(closed.jaxpr, closed.consts, keys)[0] == draw(keys)).all())
        """)
    assert lines == ["[False, False, True] True ()", "True", "True"]


def test_partial_evaluation_looks_into_checkpoints_and_compiled_functions() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax import api_util
        from jax.extend import linear_util as lu
        from jax.interpreters import partial_eval as pe
        @jax.checkpoint
        def inner(x, w):
            return jnp.sin(w) * 2, x @ w, jax.jit(lambda a, b: (a + b, jnp.cos(b)))(x, w)
        def function(x, w):
            a, b, (c, d) = inner(x, w)
            return [a, b, c, d]
        w = jnp.zeros((3, 3))
        wrapped = lu.wrap_init(function, debug_info=api_util.debug_info("f", function, (w, w), {}))
        values = [pe.PartialVal.unknown(jax.typeof(w)), pe.PartialVal.known(w)]
        jaxpr, values, constants = pe.trace_to_jaxpr_nounits(wrapped, values)
        print([None if c is None else float(c.sum()) for _, c in values])
        print([float(x.sum()) for x in jax.core.eval_jaxpr(jaxpr, constants, w + 1)])
        """)
    assert lines == ["[0.0, None, None, 9.0]", "[0.0, 9.0]"]


def test_private_names_that_packages_import() -> None:
    lines = printed("""
        import collections, warnings
        import numpy as np, jax
        from jax._src import dtypes, traceback_util
        from jax._src.public_test_util import check_close
        from jax._src.tree_util import prefix_errors
        warnings.simplefilter("error")
        print(dtypes.to_complex_dtype(np.int32), dtypes.to_complex_dtype(np.float64), dtypes.to_inexact_dtype("int8"))
        print(prefix_errors({"a": 1}, {"a": [2]}), str(prefix_errors({"a": [1]}, {"a": 2})[0]("in_axes"))[:23])
        check_close({"a": 1.0}, {"a": 1.0 + 1e-7})
        count = len(traceback_util._exclude_paths)
        traceback_util.register_exclusion("some/file.py")
        print(len(traceback_util._exclude_paths) - count, type(jax.jit(len)).__name__)
        Pair = collections.namedtuple("Pair", "first second")
        jax.tree_util.register_pytree_node(Pair, lambda p: ((p.first,), p.second), lambda s, f: Pair(*f, s))
        print(jax.tree.leaves(Pair(1, 2)))
        import inspect
        from jax._src.api_util import infer_argnums_and_argnames
        given = inspect.signature(lambda x, y, *, z: x)
        print(infer_argnums_and_argnames(given, (0, 1), None), infer_argnums_and_argnames(given, None, ("y", "z")))
        print(infer_argnums_and_argnames(given, None, None), infer_argnums_and_argnames(given, 1, "x"))
        from jaxlib import xla_client
        print(jax.dtypes.prng_key, xla_client.Device is type(jax.devices()[0]))
        """)
    assert lines == [
        "complex64 complex128 float32",
        "[] pytree structure error:",
        "1 PjitFunction",
        "[1]",
        "((0, 1), ('x', 'y')) ((1,), ('y', 'z'))",
        "((), ()) ((1,), ('x',))",
        "<class 'jax.dtypes.prng_key'> True",
    ]


def test_trees_have_leaves_in_exit_functions_that_were_registered_before() -> None:
    code = """
        import atexit
        atexit.register(lambda: print(tinyxla.tree_util.tree_leaves({"a": (1, 2)})))
        import tinyxla
        """
    assert run("-c", textwrap.dedent(code)).stdout.strip() == "[1, 2]"


def test_arrays_tell_the_named_sharding_with_which_they_were_placed() -> None:
    found = printed("""
        import jax, jax.numpy as jnp
        from jax.sharding import *
        mesh = Mesh(jax.devices(), ("x",), axis_types=(AxisType.Explicit,))
        print(mesh.are_all_axes_explicit, mesh.explicit_axes, mesh.auto_axes, AbstractMesh().are_all_axes_auto)
        over, x = NamedSharding(mesh, PartitionSpec("x")), jnp.ones((4, 2))
        placed = jax.device_put({"a": x, "b": x}, {"a": over, "b": None})
        print(placed["a"].sharding == over, type(placed["b"].sharding).__name__)
        both = jax.jit(lambda x: (x + 1, x), out_shardings=(over, None))(x)
        print(both[0].sharding.spec, both[0][0, 0], jax.jit(out_shardings=over)(jnp.sin)(x).sharding.spec)
        constrained = lambda x: jax.lax.with_sharding_constraint(x, over)
        print(constrained(x).sharding.spec, jax.grad(lambda x: constrained(x).sum())(x)[0, 0])
        with mesh:
            print(jax.lax.with_sharding_constraint(x, PartitionSpec(None, "x")).sharding.spec)
        total = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=over.spec, out_specs=PartitionSpec())
        print(total(x).sharding.spec, jnp.zeros(2, device=over).sharding.spec, reshard(x, over).sharding.spec)
        try:
            jax.jit(lambda x: (x, x), out_shardings=(over,))(x)
        except ValueError as error:
            print(type(error).__name__)
        """)
    assert found == [
        "True ('x',) () False",
        "True SingleDeviceSharding",
        "P('x',) 2.0 P('x',)",
        "P('x',) 1.0",
        "P(None, 'x')",
        "P() P('x',) P('x', None)",
        "PytreeError",
    ]


def test_vmap_of_cond_passes_operands_of_all_branches_through() -> None:
    found = printed("""
        import jax, jax.numpy as jnp
        x, y = jnp.arange(3.0), jnp.float32(5)
        scaled = lambda factor: lambda a, b: (a * factor, b)
        chosen = lambda x, y: jax.lax.cond(x > 1, scaled(2), scaled(3), x, y)
        print(jax.vmap(chosen, in_axes=(0, None), out_axes=(0, None))(x, y))
        print(jax.vmap(jax.grad(lambda x, y: sum(chosen(x, y)), argnums=(0, 1)), (0, None))(x, y))
        traces = []
        branch = lambda x: traces.append(x) or x + 1
        print(jax.jit(lambda x: jax.lax.switch(1, [branch, branch, branch], x))(1.0), len(traces))
        effects = lambda x: jax.debug.print("{x}", x=x) or x
        print(jax.lax.cond(True, effects, effects, 1.0))
        """)
    assert found == [
        "(Array([0., 3., 4.], dtype=float32), Array(5., dtype=float32))",
        "(Array([3., 3., 2.], dtype=float32), Array([1., 1., 1.], dtype=float32))",
        "2.0 1",
        "1.0",
        "1.0",
    ]


def test_segment_reductions_count_a_scalar_for_each_segment_number() -> None:
    found = printed("""
        import jax, jax.numpy as jnp
        numbers = jnp.array([0, 0, 1, 3])
        print(jax.ops.segment_sum(2.0, numbers, 4), jax.ops.segment_max(jnp.ones((1, 2)), numbers, 4)[0])
        for data in (jnp.ones(3), jnp.ones((4, 2, 2))):
            try:
                jax.ops.segment_sum(data, numbers if data.ndim == 1 else jnp.zeros((4, 2), int), 4)
            except ValueError as error:
                print(type(error).__name__)
        """)
    assert found == ["[4. 2. 0. 2.] [1. 1.]", "ShapeError", "ShapeError"]


def test_device_get_of_traced_values_gives_them() -> None:
    found = printed("""
        import jax, jax.numpy as jnp
        print(jax.vmap(lambda x: jax.device_get(x) + 1)(jnp.ones(3)), jax.grad(lambda x: jax.device_get(x) ** 2)(3.0))
        print(type(jax.device_get(jnp.ones(2))).__module__)
        print(jax.checkpoint(lambda x: isinstance(x, jax.Array))(True))
        """)
    assert found == ["[2. 2. 2.] 6.0", "numpy", "True"]


def test_check_grads_of_functions_that_bend_strongly() -> None:
    found = printed("""
        import jax, jax.numpy as jnp
        from jax.test_util import check_grads
        import numpy as np
        check_grads(lambda x: jnp.sin(30 * x), (0.3,), order=1)
        check_grads(lambda x: jnp.sin(x), (0.3,), order=2, atol={np.float32: 1e-1}, rtol={jnp.float32: 1e-1})
        try:
            check_grads(lambda x: jnp.sin(jax.lax.stop_gradient(x)), (0.3,), order=1, atol={np.float32: 1e-1})
        except AssertionError:
            print("differs")
        """)
    assert found == ["differs"]


def test_jit_with_static_numbers_and_names_takes_both_as_they_are() -> None:
    found = printed("""
        import functools, jax
        traced = []
        @functools.partial(jax.jit, static_argnums=(1,), static_argnames="c")
        def function(a, b, c):
            traced.append((isinstance(b, jax.Array), isinstance(c, jax.Array)))
            return a
        function(1.0, 2, 3), function(1.0, 2, c=3), function(1.0, b=2, c=3)
        print(traced)
        def named(a, b): pass
        wrapper = functools.wraps(named)(lambda first, a, b=0: a["x"] + b)  # b is the second parameter of what it names
        print(jax.jit(wrapper, static_argnums=0, static_argnames="b")("text", {"x": 1.0}, b=2))
        """)
    assert found == ["[(False, True), (False, False), (True, False)]", "3.0"]


def test_functions_of_numpy_give_arrays_of_numpy_and_operators_arrays_of_the_library() -> None:
    found = printed("""
        import numpy as np, jax, jax.numpy as jnp
        x = jnp.ones((2, 3))
        given = [np.zeros_like(x), np.sin(x), np.concatenate([x, x]), np.dot(np.ones((2, 2)), x), np.linalg.norm(x)]
        print(*[type(y).__module__ for y in given], given[3].dtype)
        results = [np.ones((2, 3)) + x, x + np.ones(3), np.float64(2) * x, np.ones((2, 2)) @ x, np.ones(3) < x]
        print(all(isinstance(y, jax.Array) for y in results), results[2].dtype)
        buffer = np.zeros_like(x)
        buffer[0] = x[0]
        print(buffer.sum(), np.sum(x), np.round(x)[0, 0])
        print(jax.jit(lambda x: np.ones(3) * np.max(x) + np.round(x))(x)[0])
        try:
            jax.jit(lambda x: np.sin(x))(x)
        except jax.errors.TracerArrayConversionError:
            print("refused")
        """)
    assert found == ["numpy numpy numpy numpy numpy float64", "True float32", "3.0 6.0 1.0", "[2. 2. 2.]", "refused"]


def test_updates_at_known_indices_outside_of_the_array_are_dropped_as_in_jax() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        x = jnp.arange(1.0, 4.0)
        print(x.at[5].set(9.0), x.at[jnp.array([5, 0])].add(1.0), x.at[-5].mul(2.0), x.at[jnp.array([-4, -1])].set(9.0))
        print(*[jnp.put(x, jnp.array([i]), 9.0, inplace=False) for i in (7, -2, -7)])
        print(jnp.add.at(x, jnp.array([7, 0]), 1.0, inplace=False))
        try:
            x.at[5].set(9.0, mode="nonsense")
        except ValueError:
            print("refused")
        """)
    assert lines == [
        "[1. 2. 3.] [2. 2. 3.] [1. 2. 3.] [1. 2. 9.]",
        "[1. 2. 9.] [1. 9. 3.] [9. 2. 3.]",
        "[2. 2. 3.]",
        "refused",
    ]


def test_reads_at_known_indices_outside_of_the_array_are_clamped_as_in_jax() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp, numpy as np
        x = jnp.arange(6).reshape(3, 2)
        for index in (jnp.array([0, 7]), np.array([-9, -1]), jnp.array(7), 7, (slice(None), np.uint8([0, 200]))):
            print(x[index].tolist(), jax.jit(lambda x: x[index])(x).tolist(), x.at[index].get().tolist())
        print(jnp.take(x * 1.0, jnp.array([-3, 3]), axis=0).tolist(), jnp.take(x, jnp.array([1]), axis=0).tolist())
        """)
    assert lines == [
        "[[0, 1], [4, 5]] [[0, 1], [4, 5]] [[0, 1], [4, 5]]",
        "[[0, 1], [4, 5]] [[0, 1], [4, 5]] [[0, 1], [4, 5]]",
        *["[4, 5] [4, 5] [4, 5]"] * 2,
        "[[0, 1], [2, 3], [4, 5]] [[0, 1], [2, 3], [4, 5]] [[0, 1], [2, 3], [4, 5]]",
        "[[0.0, 1.0], [nan, nan]] [[2, 3]]",
    ]


def test_python_integers_beside_arrays_of_narrow_integers_wrap_around() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        u = jnp.ones(2, jnp.uint8)
        print((u * -1).tolist(), (u + 300).tolist(), jnp.where(u > 1, u, -1).tolist(), u.at[0].set(-1).tolist())
        print(jax.jit(lambda u: u * -1)(u).tolist(), jnp.full(2, -1, jnp.uint8).tolist(), (u < -1).tolist())
        for refused in (lambda: jnp.array(-1, jnp.uint8), lambda: u + 2**40, lambda: jnp.uint8(256)):
            try:
                print(refused())
            except OverflowError as error:
                print("OverflowError")
        """)
    assert lines == [
        "[255, 255] [45, 45] [255, 255] [255, 1]",
        "[255, 255] [255, 255] [True, True]",
        "OverflowError",
        "OverflowError",
        "OverflowError",
    ]


def test_containers_that_sort_their_leaves_by_type_are_results_of_vmap() -> None:
    """As distributions of distrax: arrays, tracers and instances of `object` are leaves, numbers are not."""
    lines = printed("""
        import jax, jax.numpy as jnp

        @jax.tree_util.register_pytree_node_class
        class Distribution:
            def __init__(self, *fields):
                self.fields = fields
            def tree_flatten(self):
                held = [isinstance(x, jax.Array) or type(x) is object for x in self.fields]
                children = [x if h else None for x, h in zip(self.fields, held)]
                return children, tuple(None if h else x for x, h in zip(self.fields, held))
            @classmethod
            def tree_unflatten(cls, rest, children):
                return cls(*[c if r is None else r for c, r in zip(children, rest)])

        made = jax.vmap(lambda x: Distribution(x, 3, x + 1))(jnp.zeros((2, 4)))
        print(made.fields[0].shape, made.fields[1], made.fields[2].shape)
        """)
    assert lines == ["(2, 4) 3 (2, 4)"]


def test_typeof_a_ref_is_the_type_of_mutable_arrays() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax.ref import AbstractRef
        ref = jax.new_ref(jnp.zeros((2, 3)))
        print(isinstance(jax.typeof(ref), AbstractRef), jax.typeof(ref), jax.typeof(ref).shape)
        """)
    assert lines == ["True Ref{float32[2,3]} (2, 3)"]


def test_operators_leave_proxies_of_arrays_to_their_own_operators() -> None:
    lines = printed("""
        import jax.numpy as jnp
        class Proxy:
            def __init__(self, value):
                self.value = value
            def __getattr__(self, name):
                return Proxy(getattr(self.value, name))
            def __radd__(self, other):
                return "radd"
        print(jnp.ones(2) + Proxy(jnp.ones(2)))
        """)
    assert lines == ["radd"]


def test_distributions_of_vectors_are_modules() -> None:
    lines = printed("""
        import numpy as np
        from jax.scipy.stats.multivariate_normal import logpdf
        import jax.scipy.stats.dirichlet as dirichlet
        print(round(float(logpdf(np.zeros(2), np.zeros(2), np.eye(2))), 4))
        print(round(float(dirichlet.pdf(np.array([0.5, 0.5]), np.array([1.0, 1.0]))), 4))
        """)
    assert lines == ["-1.8379", "1.0"]


def test_dicts_are_rebuilt_with_sorted_keys() -> None:
    """What a program draws while it goes through a dict of parameters depends on the order."""
    lines = printed("""
        import collections
        import jax, jax.numpy as jnp

        @jax.tree_util.register_pytree_node_class
        class Box:
            def __init__(self, held, kept):
                self.held, self.kept = held, kept
            def tree_flatten(self):
                return (self.held,), self.kept
            @classmethod
            def tree_unflatten(cls, kept, children):
                return cls(children[0], kept)

        for kept in (1, True, [3]):  # 1 equals True, and a list has no hash
            box = jax.tree.map(lambda x: x, Box({"b": 1.0, "a": 2.0}, kept))
            print(list(box.held), box.kept)
        class Factory(list):  # it has no hash
            def __call__(self):
                return 0
        print(list(jax.tree.map(lambda x: x, collections.defaultdict(Factory(), {"b": 1, "a": 2}))))
        given = {"b": jnp.ones(2), "a": {"z": 1.0, "c": None}, "e": collections.OrderedDict(y=1.0, x=2.0)}
        for made in (jax.jit(lambda x: x)(given), jax.vmap(lambda x: x)({"b": given["b"], "a": given["b"]})):
            print(list(made), list(made.get("e", ())))
        print(list(jax.tree.map(lambda x, y: y, {"b": 1, "a": 2}, {"a": 3, "b": 4}).items()))
        gradient = jax.grad(lambda x: x["w"] * x["b"])({"w": 1.0, "b": 2.0})
        print(list(jax.eval_shape(lambda: {"q": 1, "p": 2})), list(gradient))
        """)
    assert lines == [
        "['a', 'b'] 1",
        "['a', 'b'] True",
        "['a', 'b'] [3]",
        "['a', 'b']",
        "['a', 'b', 'e'] ['y', 'x']",
        "['a', 'b'] []",
        "[('a', 3), ('b', 4)]",
        "['p', 'q'] ['b', 'w']",
    ]


def test_arrays_have_an_address_and_ufuncs_count_arguments_alone() -> None:
    assert printed("""
        import ctypes
        import jax, jax.numpy as jnp, numpy as np
        x = jnp.arange(3.0)
        print(list((ctypes.c_float * 3).from_address(x.unsafe_buffer_pointer())), jnp.add.nargs)
        print(jax.core.ShapedArray((3,), np.float32).dtype)
        """) == ["[0.0, 1.0, 2.0] 2", "float32"]


def test_what_orbax_and_pytensor_import_and_ask_of_placements() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax._src.lax.control_flow import scan
        from jax.experimental import colocated_python as cp
        from jax.experimental.array_serialization import serialization
        from jax.experimental.colocated_python import func, serialization as _
        from jax.experimental.layout import Format, Layout
        from jax.experimental.multihost_utils import reached_preemption_sync_point
        from jax.extend import ifrt_programs
        from jax._src import distributed
        from jax._src.numpy.util import promote_dtypes, promote_dtypes_complex, promote_dtypes_inexact

        x, device = jnp.ones(2), jax.devices()[0]
        mesh = jax.sharding.NamedSharding(jax.make_mesh((1,), ("a",)), jax.P("a"))
        for sharding in (x.sharding, mesh):
            found = jax.device_put({"a": x}, Format(Layout((0,)), sharding))["a"]
            print(found.sharding == sharding, sharding._addressable_device_assignment == (device,))
        print(jax.device_put(x, Format()) is x, jax.jit(lambda x: 2 * x, in_shardings=Format(None, mesh))(x))
        print(distributed.global_state.process_id, distributed.global_state.client, reached_preemption_sync_point(3))
        print(serialization.get_tensorstore_spec("/a/b"), serialization.get_tensorstore_spec("/a/b", ocdbt=True))
        wrapped = cp.colocated_python(lambda x, y: {"sum": x + y}).specialize(devices=jax.devices())
        print(wrapped(1.0, x), cp.colocated_cpu_devices(jax.devices()) == (device,))
        print(cp.colocated_cpu_devices(mesh.mesh) is mesh.mesh, device.client.runtime_type)
        for promote in (promote_dtypes, promote_dtypes_inexact, promote_dtypes_complex):
            print(*(y.dtype for y in promote(jnp.arange(2), jnp.int8(1))))
        print(scan is jax.lax.scan)
        """)
    assert lines == [
        "True True",
        "True True",
        "True [2. 2.]",
        "0 None False",
        "{'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': '/a/b'}} "
        "{'driver': 'zarr', 'kvstore': {'driver': 'ocdbt', 'base': 'file:///a', 'path': 'b'}}",
        "{'sum': Array([2., 2.], dtype=float32)} True",
        "True tinyxla",
        "int32 int32",
        "float32 float32",
        "complex64 complex64",
        "True",
    ]


def test_symbolic_zeros_and_undefined_primals_are_containers_of_nothing() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax.interpreters import ad
        aval = jax.core.ShapedArray((2,), jnp.float32)
        for x in (ad.Zero(aval), ad.UndefinedPrimal(aval)):
            found = [jax.vmap(lambda y: (y, x))(jnp.ones(3))[1], jax.jit(lambda y, x: (y, x))(1.0, x)[1]]
            print(jax.tree.leaves(x), *(type(y) is type(x) and y.aval == aval for y in found))
        """)
    assert lines == ["[] True True"] * 2


def test_implementations_that_need_values_are_called_when_programs_run() -> None:
    assert printed("""
        import jax, numpy as np
        from jax.extend.core import Primitive
        from jax.interpreters import ad, batching
        p = Primitive("half")
        p.def_impl(lambda x: np.divide(x, 2))
        p.def_abstract_eval(lambda x: x)
        ad.deflinear2(p, lambda g, x: [p.bind(g)])
        batching.primitive_batchers[p] = lambda args, axes: (p.bind(*args), axes[0])
        print(jax.make_jaxpr(p.bind)(1.0))
        print(jax.jit(p.bind)(3.0), jax.jit(jax.grad(lambda x: p.bind(x) * x))(3.0))
        print(jax.jit(jax.vmap(p.bind))(np.arange(3.0)))
        p.def_abstract_eval(lambda x: [x])
        try:
            jax.jit(p.bind)(np.ones(2))
        except ValueError as error:
            print(str(error).splitlines()[-1])
        """) == [
        "{ lambda ; a:f32[]. let b:f32[] = half a in (b,) }",
        "1.5 3.0",
        "[0.  0.5 1. ]",
        "  In JAX: half.abstract_eval() method should return a tuple or a list iff half.multiple_results.",
    ]


def test_reshape_of_arrays_of_numpy_is_of_numpy() -> None:
    assert printed("""
        import jax, jax.numpy as jnp, numpy as np
        x = np.arange(4)
        print(type(jnp.reshape(x, (2, 2))).__name__, jnp.reshape(x, (2, 2), order="F").tolist())
        print(jax.jit(lambda: 1 if jnp.reshape(x, -1).all() else 2)(), type(jnp.ravel(x)).__name__)
        """) == ["ndarray [[0, 2], [1, 3]]", "2 ArrayImpl"]


def test_functions_of_lists_for_interpreters_of_jaxprs() -> None:
    assert printed("""
        from jax._src.util import foreach, safe_map, split_list, unzip2, unzip3
        foreach(print, [1, 2], "ab")
        print(safe_map(lambda x, y: x + y, [1, 2], (3, 4)), split_list(range(4), [1]), unzip2([]), unzip3([(1, 2, 3)]))
        """) == ["1 a", "2 b", "[4, 6] [[0], [1, 2, 3]] ((), ()) ((1,), (2,), (3,))"]


def test_primitives_without_implementation_are_traced_and_transformed_but_not_computed() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax.extend.core import Primitive
        from jax.interpreters import ad, batching
        p, q = Primitive("one"), Primitive("several")
        q.multiple_results = True
        p.def_abstract_eval(lambda x: x)
        q.def_abstract_eval(lambda x: [x, jax.core.ShapedArray((2,), jnp.int32)])
        print(jax.make_jaxpr(lambda x: p.bind(x) + q.bind(x)[0])(1.0))
        print([x.shape for x in jax.eval_shape(q.bind, 1.0)])
        batching.primitive_batchers[p] = lambda args, dims: (args[0] * 2, dims[0])
        ad.primitive_jvps[p] = lambda primals, tangents: (primals[0] * 3, tangents[0] * 5)
        for wrap in (jax.jit, lambda f: lambda x: jax.lax.cond(True, f, f, x)):
            print(jax.vmap(wrap(p.bind))(jnp.ones(2)), jax.grad(wrap(p.bind))(1.0))
        print(jax.vmap(jax.checkpoint(p.bind))(jnp.ones(2)))
        for call in (p.bind, jax.jit(p.bind)):
            try:
                print(call(1.0))
            except NotImplementedError as error:
                print(str(error)[:48])
        """)
    assert lines == [
        "{ lambda ; a:f32[]. let",
        "    b:f32[] = one a",
        "    c:f32[] _:i32[2] = several a",
        "    d:f32[] = add b c",
        "  in (d,) }",
        "[(), (2,)]",
        *["[2. 2.] 5.0"] * 2,
        "[2. 2.]",
        "Evaluation rule for 'one' not implemented; defin",
        "MLIR translation rule for primitive 'one' not fo",
    ]
