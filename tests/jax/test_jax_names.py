"""Names of JAX that packages use, and parts of its interface that are there for the one device."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines as printed

# What packages built on JAX ask for, after `jax.`; of a module, that it can be imported.
USED = """
    NamedSharding P Ref _src api_util core.AbstractValue core.Atom core.DebugInfo core.DropVar core.Effects
    core.eval_jaxpr core.find_top_trace core.gensym core.get_opaque_trace_state core.new_jaxpr_eqn core.no_effects
    core.unsafe_get_axis_names_DO_NOT_USE core.valid_jaxtype custom_derivatives.custom_jvp_call_p
    custom_derivatives.zero_from_primal dlpack example_libraries.stax.glorot example_libraries.stax.randn
    experimental.checkify experimental.cur_qdd experimental.hijax experimental.layout experimental.mesh_utils
    experimental.multihost_utils experimental.shard_map experimental.sparse extend ffi.ffi_lowering interpreters
    lax.acosh_p lax.add_p lax.asinh_p lax.atanh_p lax.broadcast_in_dim_p lax.concatenate_p lax.cond_p lax.conj_p
    lax.convert_element_type_p lax.cos_p lax.cosh_p lax.div_p lax.dot_general_p lax.dynamic_slice_p
    lax.dynamic_update_slice_p lax.erf_inv_p lax.erf_p lax.exp_p lax.expm1_p lax.integer_pow_p lax.linalg.ormqr
    lax.linalg.schur lax.log1p_p lax.log_p lax.lt_p lax.mul_p lax.neg_p lax.pow_p lax.reduce_sum_p lax.reshape_p
    lax.rsqrt_p lax.scan_p lax.select_n_p lax.sin_p lax.sinh_p lax.slice_p lax.sqrt_p lax.square_p lax.squeeze_p
    lax.stop_gradient_p lax.sub_p lax.tanh_p lax.transpose_p lax.while_p make_array_from_callback monitoring new_ref
    set_mesh shard_map sharding stages.CompilerOptions tree_util.default_registry version
""".split()


def test_names_that_packages_use_are_there() -> None:
    assert (
        printed(f"""
        import importlib
        for name in {USED!r}:
            found, path = importlib.import_module("jax"), "jax"
            for part in name.split("."):
                path += "." + part
                try:
                    found = getattr(found, part)
                except AttributeError:
                    try:
                        found = importlib.import_module(path)
                    except ImportError:
                        print(path)
                        break
        """)
        == []
    )


def test_arrays_have_one_shard_and_the_device_its_memories() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        x = jnp.arange(6.0).reshape(2, 3)
        (shard,) = x.addressable_shards
        print(shard.index, shard.replica_id, shard.device, (shard.data == x).all(), isinstance(shard, jax.Shard))
        print(len(x.global_shards), (x.addressable_data(0) == x).all())
        device = jax.devices()[0]
        print(device.default_memory().kind, [m.kind for m in device.addressable_memories()])
        print(device.memory("pinned_host") == device.addressable_memories()[1])
        for call in (lambda: x.addressable_data(1), lambda: device.memory("disk")):
            try:
                call()
            except ValueError as error:
                print(str(error).splitlines()[0])
        """) == [
        "(slice(None, None, None), slice(None, None, None)) 0 cpu:0 True True",
        "1 True",
        "device ['device', 'pinned_host', 'unpinned_host']",
        "True",
        "addressable_data: this process has 1 parts, but got number 1.",
        "memory: the kinds are ['device', 'pinned_host', 'unpinned_host'], but got 'disk'.",
    ]


def test_donated_leaves_of_arguments() -> None:
    assert printed("""
        import jax
        from jax.api_util import donation_vector, rebase_donate_argnums
        tree = jax.tree.structure(((1, (2, 3)), {"b": 1, "a": [2, 3]}))
        print(donation_vector((1,), ("a",), tree))
        print(donation_vector((1,), (), jax.tree.structure((1, (2, 3))), kws=False))
        print(rebase_donate_argnums((3, 4), (0, 1)), rebase_donate_argnums((2, 0), ()))
        try:
            rebase_donate_argnums((1,), (0, 1))
        except ValueError as error:
            print(str(error).splitlines()[0])
        """) == [
        "(False, True, True, True, True, False)",
        "(False, True, True)",
        "(1, 2) (0, 2)",
        "`static_argnums` [0, 1] and `donate_argnums` [1] cannot intersect.",
    ]


def test_rules_of_functions_that_wrap_each_other_are_set_from_outside() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.custom_batching import custom_vmap
        @jax.custom_jvp
        @custom_vmap
        def f(x):
            return x + 1
        f.defjvp(lambda primals, tangents: (f(*primals), 10 * tangents[0]))
        f.def_vmap(lambda size, batched, x: (x * 100, True))
        print(jax.grad(f)(1.0), f(1.0), jax.vmap(f)(jnp.ones(2)))
        print(hasattr(jax.custom_jvp(lambda x: x), "defvjp"))
        """) == ["10.0 2.0 [100. 100.]", "False"]


def test_values_of_arguments_of_forward_rules_with_symbolic_zeros() -> None:
    assert printed("""
        import jax
        from jax.custom_derivatives import custom_vjp_primal_tree_values as values
        @jax.custom_vjp
        def f(x, y):
            return x * y
        def forward(x, y):
            print(x.perturbed, y.perturbed)
            x, y = values((x, y))
            return f(x, y), (x, y)
        f.defvjp(forward, lambda residuals, g: (g * residuals[1], None), symbolic_zeros=True)
        print(jax.grad(f)(2.0, 3.0))
        """) == ["True False", "3.0"]


def test_foreign_function_as_a_primitive_whose_derivative_is_only_transposed() -> None:
    assert printed("""
        import functools, jax, jax.numpy as jnp, numpy as np
        from jax._src.ad_util import p2tz
        from jax.extend.core import Primitive
        from jax.interpreters import ad, mlir, xla
        jax.ffi.register_ffi_target("twice", lambda x: 2 * np.asarray(x))
        p, tangent = Primitive("twice"), Primitive("tangent")
        p.def_impl(functools.partial(xla.apply_primitive, p))
        p.def_abstract_eval(lambda x: x)
        mlir.register_lowering(p, jax.ffi.ffi_lowering("twice"))
        tangent.def_abstract_eval(lambda x: x)
        ad.primitive_jvps[p] = lambda x, t: (p.bind(*x), tangent.bind(*t))
        ad.primitive_transposes[tangent] = lambda g, x: (p.bind(g),)
        print(jax.jit(p.bind)(jnp.ones(2)), p.bind(jnp.ones(2)))
        print(jax.grad(lambda x: p.bind(x).sum())(jnp.ones(2)), p2tz(jnp.ones(2)))
        """) == ["[2. 2.] [2. 2.]", "[2. 2.] Zero(float32[2])"]


def test_foreign_calls_have_layouts_and_options_are_updated_by_name() -> None:
    assert printed("""
        import jax, jax.numpy as jnp, numpy as np
        jax.config.update(name="jax_enable_x64", val=True)
        jax.ffi.register_ffi_target("same", lambda x: (x, np.float64(x.sum())), platform="cpu")
        types = [jax.ShapeDtypeStruct((2, 3), float), jax.ShapeDtypeStruct((), float)]
        call = jax.ffi.ffi_call("same", types, input_layouts=[(1, 0)], custom_call_api_version=1)
        x = jnp.arange(6.0).reshape(2, 3)
        moved, total = call(x)
        print(moved.tolist(), total)
        back, _ = jax.ffi.ffi_call("same", types, output_layouts=[(1, 0), None])(moved)
        print((back == x).all())
        """) == ["[[0.0, 3.0, 1.0], [4.0, 2.0, 5.0]] 15.0", "True"]


def test_lowering_rules_of_foreign_calls_have_layouts_attributes_and_aliases() -> None:
    assert printed("""
        import jax, jax.numpy as jnp, numpy as np
        from jax.experimental.layout import Layout
        from jax.extend.core import Primitive
        from jax.interpreters import mlir
        jax.ffi.register_ffi_target("flat", lambda x: (x.ravel(), x))
        x = jnp.arange(6, dtype=jnp.float32).reshape(2, 3)
        for column_major in ((0, 1), Layout((1, 0))):
            p = Primitive("flat")
            p.multiple_results = True
            p.def_abstract_eval(lambda x: [jax.core.ShapedArray((6,), x.dtype), x])
            rule = jax.ffi.ffi_lowering("flat", operand_layouts=[column_major], result_layouts=[None, column_major])
            mlir.register_lowering(p, rule)
            flat, same = jax.jit(p.bind)(x)
            print(flat, (same == x).all())
        p = Primitive("aliased")
        p.def_abstract_eval(lambda x, *, factor: x)
        mlir.register_lowering(p, jax.ffi.ffi_lowering("aliased", operand_output_aliases={0: 0}))
        text = jax.jit(lambda x: p.bind(x, factor=3)).lower(x).as_text()
        print("operand_index = 0" in text, "factor = 3" in text)
        """) == ["[0. 3. 1. 4. 2. 5.] True"] * 2 + ["True True"]


def test_mistakes_in_foreign_calls_have_the_words_of_jax() -> None:
    assert printed("""
        import jax, jax.numpy as jnp, numpy as np
        from jax.interpreters import mlir
        x = jnp.ones(5)
        other = jax.ShapeDtypeStruct((5,), np.int32)
        call = jax.ffi.ffi_call
        def doubled(x):
            return call("nothing", x)(x, factor={"a": 2})
        for wrong in (
            lambda: call("nothing", x, input_output_aliases={1: 0})(x),
            lambda: call("nothing", x, input_output_aliases={0: 1})(x),
            lambda: call("nothing", other, input_output_aliases={0: 0})(x),
            lambda: call("nothing", x, legacy_backend_config="text"),
            lambda: call("nothing", x, custom_call_api_version=2)(x, factor=1),
            lambda: call("nothing", None),
            lambda: call("nothing", (x, ())),
            lambda: call("nothing", x, input_layouts=[])(x),
            lambda: call("nothing", (x,), output_layouts=[None, None]),
            lambda: jax.jvp(doubled, (x,), (x,)),
            lambda: mlir.register_lowering(prim=None, rule=None, platform="foo"),
        ):
            try:
                wrong()
            except (ValueError, NotImplementedError) as error:
                print(str(error).split("In JAX: ")[1].split(chr(10))[0])
        print("factor = {a = 2" in jax.jit(doubled).lower(x).as_text())
        try:
            doubled(x)
        except RuntimeError as error:
            print(str(error).split(";")[0])
        """) == [
        "input_output_aliases contains the mapping '1:0' with input index 1 outside the range [0, 1).",
        "input_output_aliases contains the mapping '0:1' with output index 1 outside the range [0, 1).",
        "input_output_aliases contains the mapping '0:0' referring to an input with abstract value float32[5] and an "
        "output with a different abstract value int32[5].",
        "The use of the legacy_backend_config parameter requires custom_call_api_version < 4; got 4.",
        "The use of ffi_call attributes requires a custom call API version of at least 4; got api_version=2.",
        "All elements of result_shape_dtypes must have 'shape' and 'dtype' attributes. Got None at position 0.",
        "All elements of result_shape_dtypes must have 'shape' and 'dtype' attributes. Got () at position 1.",
        "The number of input arguments (1) must equal the number of input layouts (0).",
        "The number of outputs (1) must equal the number of output layouts (2).",
        "The FFI call to `nothing` cannot be differentiated.",
        "Registering an MLIR lowering rule for primitive None for an unknown platform foo. Known platforms are: cpu, "
        "cuda, gpu, oneapi, rocm, tpu.",
        "True",
        "custom-call: there is no target 'nothing'",
    ]


def test_a_lowering_is_traced_once_for_operands_of_the_same_types() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.extend.core import Primitive
        from jax.interpreters import mlir
        p = Primitive("scaled")
        p.def_abstract_eval(lambda x, by: x)
        def scale(x, by):
            print("traced", x.dtype, by)
            return x * by
        mlir.register_lowering(p, mlir.lower_fun(scale, multiple_results=False))
        @jax.jit
        def f(x, k):
            return p.bind(x, by=2) + p.bind(p.bind(x, by=2), by=3), p.bind(k, by=2)
        print(*f(jnp.ones(2), 1))
        """) == ["traced float32 2", "traced float32 3", "traced int32 2", "[8. 8.] 2"]


def test_refs_among_arguments_of_custom_rules_scans_and_jaxprs() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax import lax
        @jax.custom_vjp
        def noted(ref, x):
            return x
        def back(ref, g):
            ref[...] = g
            return None, g
        noted.defvjp(lambda ref, x: (x, ref), back)
        for transform in (lambda f: f, jax.jit):
            ref = jax.new_ref(0.0)
            print(transform(jax.grad(lambda x, ref: 3 * noted(ref, 2 * x)))(1.0, ref), ref[...])
        ref = jax.new_ref(jnp.arange(5))
        def step(carry, given):
            k, own = given
            own[...] += k
            return carry + own[...], own[...]
        for transform in (lambda f: f, jax.jit):
            print(*transform(lambda: lax.scan(step, 0, (jnp.arange(5), ref)))(), ref[...])
        def f(ref):
            ref[...] += 1
            return ref[...]
        traced = jax.make_jaxpr(f)(ref)
        print(bool(traced.effects), len(traced.in_avals), jax.typeof(ref), ref.sharding == ref[...].sharding)
        print(bool(jax.make_jaxpr(lambda: ref[...])().effects), ref[0])
        for call in (
            lambda: jax.core.eval_jaxpr(traced.jaxpr, traced.consts, ref[...]),
            lambda: jax.jit(lambda a, b: a[...] + b[...])(ref, ref),
            lambda: jax.jit(lambda a: a[...] + ref[...])(ref),
        ):
            try:
                call()
            except ValueError as error:
                print(str(error).splitlines()[0])
        """) == [
        "6.0 3.0",
        "6.0 3.0",
        "20 [0 2 4 6 8] [0 2 4 6 8]",
        "30 [ 0  3  6  9 12] [ 0  3  6  9 12]",
        "True 1 Ref{int32[5]} True",
        "True 0",
        "eval_jaxpr: the jaxpr is of a function that uses a Ref: it can be looked at, but not run.",
        "jit of <lambda>: a Ref is passed twice, as the arguments a and b; a function takes it one way only.",
        "jit of <lambda>: a Ref is used from around and passed as the argument a; a function takes it one way only.",
    ]


def test_dictionaries_of_modules_have_their_public_names() -> None:
    assert printed("""
        import importlib, jax, types
        for name in ("jax.lax", "jax.random", "jax.scipy.special", "jax.sharding", "jax.tree_util"):
            module = importlib.import_module(name)
            names = {n for n in dir(module) if not isinstance(getattr(module, n), types.ModuleType)}
            print(sorted(names - set(vars(module))))
        print({"P", "jit", "vmap", "Array"} <= set(vars(jax)))
        """) == [*["[]"] * 5, "True"]


def test_tracers_arrays_and_types_print_as_in_jax() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        x = jnp.ones(3)
        for transform in (jax.jit, jax.grad, jax.vmap, lambda f: lambda x: jax.jvp(f, (x,), (x,))):
            transform(lambda x: print(type(x).__name__, x) or x.sum())(x)
        jax.jit(lambda k: print(k))(jax.random.key(0))
        jax.vmap(lambda k: print(repr(k)))(jax.random.split(jax.random.key(0)))
        print(type(x), jnp.float32, [jnp.bool_])
        print(jax.NamedSharding(jax.sharding.AbstractMesh((2,), ("x",)), jax.P("x")))
        mesh = jax.make_mesh((1,), ("x",))  # orbax tells meshes without devices by their class
        print([isinstance(m, jax.sharding.AbstractMesh) for m in (mesh, mesh.abstract_mesh)])
        """) == [
        "DynamicJaxprTracer JitTracer(float32[3])",
        "LinearizeTracer GradTracer(primal=[1. 1. 1.], typeof(tangent)=f32[3])",
        "BatchTracer VmapTracer(aval=float32[], batched=float32[3])",
        "JVPTracer JVPTracer(primal=[1. 1. 1.], tangent=[1. 1. 1.])",
        "JitTracer(key<fry>[])",
        "VmapTracer(aval=key<fry>[], batched=key<fry>[2])",
        "<class 'jaxlib._jax.ArrayImpl'> <class 'jax.numpy.float32'> [<class 'jax.numpy.bool'>]",
        "NamedSharding(mesh=AbstractMesh('x': 2, axis_types=(Auto,)), spec=P('x',))",
        "[False, True]",
    ]


def test_stages_tell_types_shardings_and_the_jaxpr() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        f = jax.jit(lambda x, *, y: {"a": x * y})
        traced = f.trace(jnp.ones(3), y=2)
        lowered, compiled = traced.lower(), traced.lower().compile()
        print(traced.jaxpr, type(traced.jaxpr).__name__)
        print(*(str(aval) for aval in jax.tree.leaves(traced.in_avals)), str(lowered.out_avals["a"]))
        print(jax.tree.leaves(compiled.input_shardings), compiled.output_shardings, compiled.donate_argnums)
        print(*(x.layout.major_to_minor for x in compiled.input_formats[0]), compiled.output_formats["a"].layout.tiling)
        print(jnp.ones((2, 3)).format.layout.major_to_minor)
        print(f._cache_size(), f(jnp.ones(3), y=2)["a"], f._cache_size())
        print(jax.P("x", None), jax.P("x"), str(jax.typeof(1)), str(jax.typeof(jnp.ones(2))))
        """) == [
        "{ lambda ; a:f32[3] b:i32[]. let",
        "    c:f32[] = convert_element_type[new_dtype=float32 weak_type=False] b",
        "    d:f32[3] = mul a c",
        "  in (d,) } ClosedJaxpr",
        "float32[3] ~int32[] float32[3]",
        "[SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device), "
        "SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)] "
        "{'a': SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)} ()",
        "(0,) ()",
        "(0, 1)",
        "1 [2. 2. 2.] 1",
        "P('x', None) P('x',) ~int32[] float32[2]",
    ]


def test_primitives_of_sparse_arrays_are_bound_with_their_parts() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.experimental import sparse
        from jax.experimental.sparse.coo import COOInfo
        m, v, kind = jnp.array([[1.0, 0, 2], [0, 3, 0]]), jnp.ones(3), jnp.dtype("int32")
        numbers = {"dimension_numbers": (((1,), (0,)), ((), ())), "preferred_element_type": None}
        data, indices = sparse.bcoo_fromdense_p.bind(m, nse=3, n_batch=0, n_dense=0, index_dtype=kind)
        info = COOInfo(m.shape)
        print(data, sparse.bcoo_dot_general_p.bind(data, indices, v, **numbers, lhs_spinfo=info))
        print((sparse.bcoo_todense_p.bind(data, indices, spinfo=info) == m).all())
        print(sparse.bcoo_extract_p.bind(indices, m, assume_unique=True))
        turned = sparse.bcoo_transpose_p.bind(data, indices, permutation=(1, 0), spinfo=info)
        print(len(turned), sparse.bcoo_todense_p.bind(*turned, spinfo=COOInfo((3, 2))).tolist())
        parts = sparse.coo_fromdense_p.bind(m, nse=3, index_dtype=kind)
        print(sparse.coo_matvec_p.bind(*parts, v, spinfo=info, transpose=False))
        parts = sparse.csr_fromdense_p.bind(m, nse=3, index_dtype=kind)
        print(sparse.csr_matvec_p.bind(*parts, v, shape=m.shape, transpose=False), parts[2])
        print(sparse.csr.csr_matvec_p is sparse.csr_matvec_p, sparse.BCOO.fromdense(m).nse)
        """) == [
        "[1. 2. 3.] [3. 3.]",
        "True",
        "[1. 2. 3.]",
        "2 [[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]]",
        "[3. 3.]",
        "[3. 3.] [0 2 3]",
        "True 3",
    ]


def test_errors_tell_that_frames_are_left_out_and_options_are_objects() -> None:
    assert printed("""
        import traceback
        import jax
        from jax._src import config, traceback_util
        def user(x):
            assert False, "boom"
        for mode in ("quiet_remove_frames", "remove_frames", "off"):
            with config.traceback_filtering(mode):
                try:
                    jax.jit(user)(1.0)
                except AssertionError as error:
                    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
                    notes = ["For simplicity" in note for note in getattr(error, "__notes__", ())]
                    cause = error.__cause__
                    whole = traceback.extract_tb(cause.__traceback__) if cause else []
                    print(len(frames) == 2, notes, type(cause).__name__, len(whole) > 2)
        print(isinstance(cause, traceback_util.UnfilteredStackTrace), config.enable_x64.value)
        with config.enable_x64(True), config.log_compiles(True):
            print(config.enable_x64.value, jax.numpy.ones(2).dtype, config.numpy_rank_promotion)
        """) == [
        "True [True] NoneType False",
        "True [] UnfilteredStackTrace True",
        "False [] NoneType False",
        "False False",
        "True float64 State(numpy_rank_promotion, value='allow')",
    ]


def test_stop_gradient_of_containers_is_recorded_leaf_by_leaf() -> None:
    (line,) = printed("""
        import jax, jax.numpy as jnp
        jaxpr = jax.make_jaxpr(lambda x: jax.lax.stop_gradient({"a": x, "b": (None, 2 * x)}))(1.0)
        print([str(e.primitive) for e in jaxpr.jaxpr.eqns])
        """)
    assert line == "['mul', 'stop_gradient', 'stop_gradient']"


def test_results_of_stop_gradient_have_no_tangent_where_a_jaxpr_is_recorded() -> None:
    lines = printed("""
        import jax
        @jax.custom_jvp
        def constant(x):
            return x
        def refuse(primals, tangents):
            if type(tangents[0]).__name__ != "SymbolicZero":
                raise RuntimeError("a tangent")
            return primals[0], tangents[0]
        constant.defjvp(refuse, symbolic_zeros=True)
        def f(x):
            return x * constant(jax.lax.stop_gradient(x))
        print(jax.linearize(f, 3.0)[0])
        print(jax.eval_shape(lambda x: jax.linearize(f, x)[0], 3.0).shape)
        recorded = jax.make_jaxpr(f)(3.0)
        g = lambda x: jax.core.eval_jaxpr(recorded.jaxpr, recorded.consts, x)[0]
        print(jax.linearize(g, 3.0)[1](1.0), jax.grad(g)(3.0), jax.jvp(g, (3.0,), (1.0,))[1])
        """)
    assert lines == ["9.0", "()", "3.0 3.0 3.0"]


def test_distributed_is_a_module() -> None:
    lines = printed("""
        import jax
        from jax import distributed
        print(jax.distributed is distributed, distributed.is_initialized(), callable(distributed.initialize))
        """)
    assert lines == ["True False True"]


def test_arrays_of_float0_are_made_by_their_type() -> None:
    lines = printed("""
        import numpy as np
        import jax, jax.numpy as jnp
        float0 = jax.dtypes.float0
        for _ in range(3):  # calls that are alike are recorded and replayed
            made = jnp.zeros(2, float0), jnp.ones((2, 1), float0), jnp.full((), 0, float0)
        print([(x.dtype == float0, x.shape) for x in (*made, jnp.zeros_like(made[0]))])
        y, t = jax.jvp(lambda x, n: x * n, (2.0, 3), (1.0, jnp.zeros((), float0)))
        print(float(y), float(t))
        """)
    assert lines == ["[(True, (2,)), (True, (2, 1)), (True, ()), (True, (2,))]", "6.0 3.0"]


def test_stages_tell_which_arguments_are_donated() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        f = jax.jit(lambda a, b, *, k: (a["x"] + b, k), donate_argnums=0)
        lowered = f.lower({"x": jnp.ones(2)}, jnp.ones(2), k=jnp.ones(()))
        print(lowered.args_info[0])
        print(lowered.donate_argnums, lowered.compile().donate_argnums, jax.jit(lambda x: x).lower(1.0).donate_argnums)
        info = jax.jit(jax.random.uniform).lower(jax.random.key(0)).args_info[0][0]
        print(isinstance(info, jax.stages.ArgInfo), info.shape, info.dtype)
        """)
    assert lines == [
        "({'x': ArgInfo(_aval=ShapedArray(float32[2]), donated=True)}, "
        "ArgInfo(_aval=ShapedArray(float32[2]), donated=False))",
        "(0,) (0,) ()",
        "True () key<fry>",
    ]


def test_policies_of_checkpoints_are_asked_of_primitives() -> None:
    assert printed("""
        import contextlib, io
        import jax, jax.numpy as jnp
        from jax import lax
        from jax.ad_checkpoint import checkpoint_name, print_saved_residuals
        policies = jax.checkpoint_policies
        def f(x):
            return jnp.cos(checkpoint_name(jnp.sin(jnp.sin(x) @ x), "named")) * jnp.cosh(x)
        for policy in (
            lambda prim, *avals, **params: prim is lax.sin_p and avals[0].shape == (3,),
            lambda prim, *avals, **params: params.get("dimension_numbers") == (((0,), (0,)), ((), ())),
            lambda prim, *avals, **params: str(prim) == "cosh" or policies.dots_saveable(prim, *avals, **params),
            policies.save_from_both_policies(lambda prim, *_, **__: prim.name == "cosh", policies.dots_saveable),
            policies.save_only_these_names("named"),
        ):
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                print_saved_residuals(jax.checkpoint(f, policy=policy), jnp.ones(3))
            print(sorted(line.split()[0] for line in told.getvalue().splitlines()))
        from jax._src.ad_checkpoint import saved_residuals
        print(sorted(str(aval) for aval, _ in saved_residuals(jax.checkpoint(f, policy=policy), jnp.ones(3))))
        back = jax.make_jaxpr(jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))))(1.0)
        print([(e.primitive.name, e.params.get("differentiated")) for e in back.eqns[-1:]], "barrier" in str(back))
        print(jax.core.eval_jaxpr(back.jaxpr, back.consts, 0.0), jax.grad(jax.grad(jax.remat(jnp.cos)))(0.0))
        """) == [
        "['f32[3]', 'f32[3]']",
        "['f32[3]', 'f32[]']",
        "['f32[3]', 'f32[3]', 'f32[]']",
        "['f32[3]', 'f32[3]', 'f32[]']",
        "['f32[3]', 'f32[]']",
        "['float32[3]', 'float32[]']",
        "[('remat2', True)] False",
        "[Array(1., dtype=float32, weak_type=True)] -1.0",
    ]


def test_policies_of_checkpoints_answer_in_words() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax import ad_checkpoint

        def saved(answer):
            f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=lambda *avals, **params: answer)
            return jax.jit(jax.grad(f)).lower(1.0).as_text().count("sine")

        print(saved(ad_checkpoint.Saveable) == saved(True), saved(ad_checkpoint.Recompute) == saved(False))
        print(saved(ad_checkpoint.Offloadable("device", "pinned_host")) == saved(True), saved(True) == saved(False))
        print(ad_checkpoint.checkpoint_policies.dots_saveable is jax.checkpoint_policies.dots_saveable)
        """)
    assert lines == ["True True", "True False", "True"]


def test_options_without_effect_are_contexts_that_warn_of_what_does_not_hold() -> None:
    lines = printed("""
        import warnings
        import jax
        with jax.softmax_custom_jvp(True), jax.array_garbage_collection_guard("allow"):
            print(jax.enable_checks.value, jax.jit(lambda x: x + 1)(1).item())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with jax.thread_guard(True):
                pass
        print(str(caught[0].message))
        """)
    assert lines == [
        "None 2",
        "The option 'thread_guard' has no effect here, but got True; what holds is leaving it out.",
    ]


def test_arrays_tell_their_size_and_values_are_logged() -> None:
    lines = printed("""
        import logging, sys
        import jax, jax.numpy as jnp
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
        jax.jit(lambda x: jax.debug.log("x is {x:.1f}", x=x))(jnp.arange(2.0))
        print(jnp.ones((2, 3)).on_device_size_in_bytes())
        """)
    assert lines == ["INFO x is [0.0 1.0]", "24"]


def test_functions_and_environment_print_as_in_jax() -> None:
    lines = printed("""
        import jax

        class Unprintable:
            def __call__(self, x):
                return x

            def __repr__(self):
                raise ValueError

        def f(x):
            return x

        print(repr(jax.jit(f)).startswith("<PjitFunction of <function f at"), jax.jit(Unprintable()))
        print(jax.make_jaxpr(f).__name__, jax.print_environment_info(return_string=True).splitlines()[0])
        compiled = jax.jit(f).lower(1.0).compile()
        executable = compiled.runtime_executable()
        print(compiled.in_avals, executable.get_output_memory_kinds())
        print(executable.hlo_modules()[0].to_string() == compiled.as_text())
        """)
    assert lines == [
        "True <PjitFunction>",
        "make_jaxpr(f) jax:    0.10.2",
        "((ShapedArray(float32[], weak_type=True),), {}) [['device']]",
        "True",
    ]


def test_cache_misses_and_traces_are_logged_in_words_of_jax() -> None:
    lines = printed("""
        import logging, sys
        import jax, jax.numpy as jnp
        logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(message)s")

        @jax.jit
        def f(x, *y):
            return x

        with jax.log_compiles():
            f(1.0)
        with jax.explain_cache_misses():
            f(1.0, 2.0)
        """)
    said = [line.strip() for line in lines if line.startswith("  In JAX")]
    assert said[0].startswith("In JAX: Finished tracing f for jit in ")
    assert said[1].startswith("In JAX: Compiling jit(f) with global shapes and types")
    assert said[2].startswith("In JAX: Finished XLA compilation of jit(f) in ")
    assert "TRACING CACHE MISS" in said[3]
    assert said[3].endswith("for f: different input pytree")


def test_lowered_functions_are_texts_of_stablehlo() -> None:
    program = """
        import jax, jax.numpy as jnp
        print(jax.jit(jnp.sin).lower(1.0).as_text().splitlines()[0])
        print("stablehlo.sine" in jax.jit(jnp.sin).lower(1.0).as_text())
        print(jax.jit(jnp.sin).lower(1.0).as_text("hlo")[:9])
        print(jax.jit(lambda x: jax.pure_callback(abs, x, x)).lower(1.0).as_text()[:9])
        """
    assert printed(program) == [
        "module @jit_sin attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {",
        "True",
        "HloModule",
        "HloModule",
    ]


def test_tokens_texts_and_docstrings_are_as_in_jax() -> None:
    assert printed("""
        import jax
        from jax.extend import core

        def f(x):
            "Adds one."
            return x + 1

        token = jax.jit(lambda x: jax.lax.create_token(x))(1.0)
        print(isinstance(token, core.Token), isinstance(jax.numpy.ones(2), core.Token))
        lowered = jax.jit(f).lower(1.0)
        print(lowered.as_text().startswith("module"), lowered.as_text() == lowered.as_text("stablehlo"))
        print(jax.vmap(f).__doc__.splitlines()[-1], jax.lax.dce_sink(1))
        """) == ["True False", "True True", "Adds one. None"]


def test_scalar_types_are_pickled_as_themselves_and_dtypes_have_those_of_numpy() -> None:
    assert printed("""
        import pickle
        import jax, jax.numpy as jnp, numpy as np
        types = [jnp.bool_, jnp.int4, jnp.uint8, jnp.bfloat16, jnp.float8_e4m3fn, jnp.complex64]
        print(all(pickle.loads(pickle.dumps(t)) is t for t in types))
        one = jax.dtypes.bfloat16(1)
        print(isinstance(one, np.generic), type(one).__name__, jnp.dtype(jax.dtypes.bfloat16) == jnp.bfloat16)
        """) == ["True", "True bfloat16 True"]


def test_tracing_and_compiling_are_told_to_loggers_and_listeners_of_jax() -> None:
    assert printed("""
        import logging, tempfile
        import jax, jax.numpy as jnp

        seen, durations = [], []
        handler = logging.Handler()
        handler.emit = lambda record: seen.append((record.name, record.getMessage()))
        logging.getLogger("jax").addHandler(handler)
        x = jnp.ones(3)
        jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **tags: durations.append(event))
        f = jax.jit(lambda x: jnp.sin(x) * 3.25)
        with jax.log_compiles(), jax.explain_cache_misses():
            f(x), f(x)
        for name, message in sorted(seen):
            print(name, message.split("In JAX: ")[1].split()[0])
        print(*[event.rpartition("/")[2] for event in durations])
        jax.profiler.start_trace(tempfile.mkdtemp())
        try:
            jax.profiler.start_trace(tempfile.mkdtemp())
        except RuntimeError:
            jax.profiler.stop_trace()
        print(jax.extend.backend.get_default_device() == jax.devices()[0])
        """) == [
        "jax._src.dispatch Finished",
        "jax._src.dispatch Finished",
        "jax._src.interpreters.partial_eval TRACING",
        "jax._src.interpreters.pxla Compiling",
        "jaxpr_trace_duration jaxpr_to_mlir_module_duration backend_compile_duration",
        "True",
    ]


def test_programs_define_generators_of_random_bits() -> None:
    assert printed("""
        import jax, jax.numpy as jnp, numpy as np
        from jax.extend import random

        base = random.threefry_prng_impl
        widths = []
        def bits(words, width, shape):
            widths.append(width)
            return base.random_bits(words, width, shape)
        rules = dict(split=base.split, random_bits=bits, fold_in=base.fold_in, name="own", tag="o")
        own = random.define_prng_impl(key_shape=(2,), seed=lambda n: jnp.array([7, n], np.uint32), **rules)
        key = jax.random.key(3, impl=own)
        like = jax.random.wrap_key_data(jax.random.key_data(key))
        print(key.dtype, jax.random.key_data(key), own.key_shape, own.tag, base.seed(3))
        for draw in (jax.random.uniform, lambda k: jax.random.bits(jax.random.fold_in(k, 1), dtype="uint8")):
            keys, others = jax.random.split(key, 3), jax.random.split(like, 3)
            print(draw(key) == jax.jit(draw)(key) == draw(like), (jax.vmap(draw)(keys) == jax.vmap(draw)(others)).all())
        print(sorted(set(widths)))
        print(jax.random.key_impl(key) == own, jax.random.key_impl(like))
        words = jax.random.key_data(random.random_seed(np.array([1, 2]), impl=base))
        print(words.tolist(), random.threefry2x32_p.bind(*words.T, *words.T)[0].shape)
        """) == [
        "key<o> [7 3] (2,) o [0 3]",
        "True True",
        "True True",
        "[8, 32]",
        "True threefry2x32",
        "[[0, 1], [0, 2]] (2,)",
    ]


def test_words_of_defined_keys_have_any_shape() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.extend import random

        base = random.threefry_prng_impl
        own = random.define_prng_impl(
            key_shape=(2, 2),
            seed=lambda n: jnp.stack([base.seed(n), base.seed(n + 1)]),
            split=lambda words, shape: jax.vmap(lambda k: base.split(k, shape), out_axes=-2)(words),
            fold_in=lambda words, data: jax.vmap(lambda k: base.fold_in(k, data))(words),
            random_bits=lambda words, width, shape: base.random_bits(words[0], width, shape),
        )
        key = jax.random.key(3, impl=own)
        print(key.shape, own.key_shape, jax.random.key_data(key).tolist())
        first = jax.random.key(3)
        for made, like in (
            (jax.random.split(key, 3)[1], jax.random.split(first, 3)[1]),
            (jax.random.split(key, (2, 3))[1, 2], jax.random.split(first, (2, 3))[1, 2]),
            (jax.random.fold_in(key, 7), jax.random.fold_in(first, 7)),
        ):
            print((jax.random.key_data(made)[0] == jax.random.key_data(like)).all())
            print(jax.random.uniform(made) == jax.jit(jax.random.uniform)(made) == jax.random.uniform(like))
        keys = jax.random.split(key, 5)
        wrapped = jax.random.wrap_key_data(jax.random.key_data(keys), impl=own)
        print(keys.shape, jax.random.key_data(keys).shape, (wrapped == keys).all())
        print((jax.vmap(jax.random.uniform)(keys) == jax.vmap(jax.random.uniform)(jax.random.split(first, 5))).all())
        try:
            jax.random.wrap_key_data(jnp.ones((3, 4), "uint32"), impl=own)
        except ValueError as error:
            print(str(error).splitlines()[0])
        """) == [
        "() (2, 2) [[0, 3], [0, 4]]",
        *["True"] * 6,
        "(5,) (5, 2, 2) True",
        "True",
        "jax.random.wrap_key_data: keys key<?> are made of u32[..., 2, 2] arrays, but got u32[3,4].",
    ]


def test_private_modules_are_the_public_ones_of_the_same_name() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.sharding import PartitionSpec as P
        from jax._src.interpreters.batching import is_vmappable
        from jax._src.lax import linalg, parallel
        from jax._src.lib import xla_client
        from jax._src import mesh, named_sharding, partition_spec, shard_map
        from jax._src.pjit import auto_axes
        from jax._src.scipy.special import gammaln
        from jax._src.sharding_impls import canonicalize_sharding
        from jax._src.typing import DTypeLike
        print(gammaln is jax.scipy.special.gammaln, DTypeLike is jax.typing.DTypeLike, is_vmappable(jnp.ones(3)))
        print(linalg.svd_p, auto_axes is jax.sharding.auto_axes, issubclass(xla_client.XlaRuntimeError, Exception))
        print(jax._src.core.concrete_or_error(int, jnp.array(3)))
        print(partition_spec.PartitionSpec is P, shard_map.shard_map is jax.shard_map, mesh.Mesh is jax.sharding.Mesh)
        print(parallel.psum is jax.lax.psum, jax.sharding.ManualAxisType(varying={"x"}).reduced)
        print(mesh.thread_resources.env.physical_mesh == mesh.EMPTY_ENV.physical_mesh, mesh.get_abstract_mesh().empty)
        print(canonicalize_sharding(None, "map"), canonicalize_sharding(jax.typeof(jnp.ones(3)).sharding, "map"))
        with jax.set_mesh(jax.make_mesh((1,), ("x",))):
            print(canonicalize_sharding(P("x"), "map").spec)
        try:
            import jax._src.nowhere
        except ModuleNotFoundError as error:
            print(error.name)
        """) == [
        "True True False",
        "svd True True",
        "3",
        "True True True",
        "True frozenset()",
        "True True",
        "None None",
        "P('x',)",
        "jax._src.nowhere",
    ]


def test_arrays_and_tracers_are_of_modules_of_jax() -> None:
    """By these, packages such as autoray, PennyLane and opt_einsum find the library of an array."""
    assert printed("""
        import pickle
        import jax, jax.numpy as jnp
        from jax.experimental import jet
        root = lambda x: type(x).__module__.split(".")[0]
        x = jnp.ones(2)
        print(root(x), root(jax.random.key(0)), type(x), pickle.loads(pickle.dumps(type(x))) is type(x))
        for transform in (jax.jit, jax.vmap, lambda f: jax.jacfwd(f), lambda f: jax.jacrev(f), jax.make_jaxpr):
            transform(lambda x: (print(root(x)), x)[1])(x)
        jet.jet(lambda x: (print(root(x)), x)[1], (x,), ((x,),))
        try:
            jax.jit(lambda x: x.meen)(x)
        except AttributeError as error:
            print(error)
        """) == [
        "jaxlib jaxlib <class 'jaxlib._jax.ArrayImpl'> True",
        *["jax"] * 6,
        "'DynamicJaxprTracer' object has no attribute 'meen'. Did you mean 'mean'?",
    ]


def test_profiles_of_memory_are_files_of_pprof_and_servers_have_no_effect() -> None:
    assert printed("""
        import gzip, tempfile, warnings, jax, jax.numpy as jnp
        x = jnp.ones((40, 17))
        with tempfile.NamedTemporaryFile() as file:
            jax.profiler.save_device_memory_profile(file.name)
            data = gzip.decompress(file.read())
        print(b"float32[40,17]" in data, data.startswith(bytes([10, 4, 8, 1, 16, 2])))
        print(jax.profiler.ProfileOptions().host_tracer_level)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            jax.profiler.start_server(9999)
        print(len(caught))
        for call in (lambda: jax.profiler.start_server(9998), jax.profiler.stop_server, jax.profiler.stop_server):
            try:
                call()
            except ValueError as error:
                print(str(error).split(": ")[1].split(".")[0])
        """) == ["True True", "2", "1", "Only one profiler server can be active at a time", "No active profiler server"]


def test_constraints_of_layouts_leave_arrays_as_they_are() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.experimental.layout import Layout, with_layout_constraint
        x = jnp.ones((2, 3))
        print(jax.jit(lambda x: with_layout_constraint({"a": x}, Layout((1, 0))))(x)["a"].shape)
        try:
            with_layout_constraint(x, Layout((0,)))
        except ValueError as error:
            print("Layout(major_to_minor=(0,)" in str(error))
        """) == ["(2, 3)", "True"]
