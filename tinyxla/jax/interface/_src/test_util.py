"""`jax._src.test_util`: what JAX's own tests, and tests of packages, are written with."""

from tinyxla.jax.finder import JAX_VERSION as JAX_VERSION
from tinyxla.jax.testing.case_classes import (
    BufferDonationTestCase as BufferDonationTestCase,
    JaxTestCase as JaxTestCase,
    assert_global_configs_unchanged as assert_global_configs_unchanged,
    global_config_context as global_config_context,
    is_sequence as is_sequence,
    thread_local_config_context as thread_local_config_context,
    with_config as with_config,
    with_global_config as with_global_config,
)
from tinyxla.jax.testing.cases import (
    NUM_GENERATED_CASES as NUM_GENERATED_CASES,
    cases_from_gens as cases_from_gens,
    named_cases_from_sampler as named_cases_from_sampler,
    parameterized_filterable as parameterized_filterable,
    sample_product as sample_product,
    sample_product_testcases as sample_product_testcases,
    sanitize_test_name as sanitize_test_name,
)
from tinyxla.jax.testing.counters import (
    assert_num_jit_and_pmap_compilations as assert_num_jit_and_pmap_compilations,
    count_compilation_after_persistent_cache_miss as count_compilation_after_persistent_cache_miss,
    count_device_put as count_device_put,
    count_jit_and_pmap_lowerings as count_jit_and_pmap_lowerings,
    count_jit_compilation_cache_miss as count_jit_compilation_cache_miss,
    count_jit_tracing_cache_miss as count_jit_tracing_cache_miss,
    count_pjit_cpp_cache_miss as count_pjit_cpp_cache_miss,
    count_primitive_compiles as count_primitive_compiles,
    count_subjaxpr_to_hlo_conversion as count_subjaxpr_to_hlo_conversion,
    register_event_duration_listener as register_event_duration_listener,
)
from tinyxla.jax.testing.devices import (
    SKIP_SLOW_TESTS as SKIP_SLOW_TESTS,
    TEST_WITH_PERSISTENT_COMPILATION_CACHE as TEST_WITH_PERSISTENT_COMPILATION_CACHE,
    CudaArchSpecificTest as CudaArchSpecificTest,
    device_kind_match as device_kind_match,
    device_supports_buffer_donation as device_supports_buffer_donation,
    device_under_test as device_under_test,
    get_tpu_version as get_tpu_version,
    is_asan as is_asan,
    is_cloud_tpu as is_cloud_tpu,
    is_cloud_tpu_at_least as is_cloud_tpu_at_least,
    is_cuda_compute_capability_at_least as is_cuda_compute_capability_at_least,
    is_cuda_compute_capability_equal as is_cuda_compute_capability_equal,
    is_cuda_version_at_least as is_cuda_version_at_least,
    is_device_cuda as is_device_cuda,
    is_device_rocm as is_device_rocm,
    is_device_tpu as is_device_tpu,
    is_device_tpu_at_least as is_device_tpu_at_least,
    is_gil_disabled as is_gil_disabled,
    is_msan as is_msan,
    is_optimized_build as is_optimized_build,
    is_sanitized as is_sanitized,
    is_test_rbe as is_test_rbe,
    is_tsan as is_tsan,
    pattern_search as pattern_search,
    pjrt_c_api_version_at_least as pjrt_c_api_version_at_least,
    pytest_mark_if_available as pytest_mark_if_available,
    request_cpu_devices as request_cpu_devices,
    run_on_devices as run_on_devices,
    runtime_environment as runtime_environment,
    skip_on_devices as skip_on_devices,
    skip_on_flag as skip_on_flag,
    skip_under_pytest as skip_under_pytest,
    stablehlo_version_at_least as stablehlo_version_at_least,
    test_device_matches as test_device_matches,
)
from tinyxla.jax.testing.element_types import (
    dtypes as dtypes,
    num_float_bits as num_float_bits,
    numpy_version as numpy_version,
    parse_version as parse_version,
    promote_like_jnp as promote_like_jnp,
    strict_promotion_if_dtypes_match as strict_promotion_if_dtypes_match,
    supported_dtypes as supported_dtypes,
    to_default_dtype as to_default_dtype,
    with_jax_dtype_defaults as with_jax_dtype_defaults,
)
from tinyxla.jax.testing.meshes import (
    MeshSpec as MeshSpec,
    create_mesh as create_mesh,
    with_explicit_mesh as with_explicit_mesh,
    with_mesh as with_mesh,
    with_mesh_from_kwargs as with_mesh_from_kwargs,
)
from tinyxla.jax.testing.mpmath_functions import (
    numpy_with_mpmath as numpy_with_mpmath,
    vectorize_with_mpmath as vectorize_with_mpmath,
)
from tinyxla.jax.testing.programs import (
    JIT_IMPLEMENTATION as JIT_IMPLEMENTATION,
    assert_dot_precision as assert_dot_precision,
    assert_dot_preferred_element_type as assert_dot_preferred_element_type,
    capture_stderr as capture_stderr,
    capture_stdout as capture_stdout,
    check_raises as check_raises,
    check_raises_regexp as check_raises_regexp,
    complex_plane_sample as complex_plane_sample,
    fwd_bwd_jaxprs as fwd_bwd_jaxprs,
    iter_eqns as iter_eqns,
    set_env as set_env,
)
from tinyxla.jax.testing.random_arrays import (
    rand_bool as rand_bool,
    rand_default as rand_default,
    rand_fullrange as rand_fullrange,
    rand_indices_unique_along_axis as rand_indices_unique_along_axis,
    rand_int as rand_int,
    rand_nonzero as rand_nonzero,
    rand_not_small as rand_not_small,
    rand_positive as rand_positive,
    rand_small as rand_small,
    rand_small_positive as rand_small_positive,
    rand_some_equal as rand_some_equal,
    rand_some_inf as rand_some_inf,
    rand_some_inf_and_nan as rand_some_inf_and_nan,
    rand_some_nan as rand_some_nan,
    rand_some_zero as rand_some_zero,
    rand_uniform as rand_uniform,
    rand_unique_int as rand_unique_int,
)
from tinyxla.jax.testing.shapes import (
    NUMPY_SCALAR_SHAPE as NUMPY_SCALAR_SHAPE,
    PYTHON_SCALAR_SHAPE as PYTHON_SCALAR_SHAPE,
    ScalarShape as ScalarShape,
    dimensions as _dims_of_shape,
    dtype_str as dtype_str,
    format_shape_dtype_string as format_shape_dtype_string,
    in_shape as _cast_to_shape,
    is_valid_shape as is_valid_shape,
)
from tinyxla.jax.testing.threads import (
    TEST_NUM_THREADS as TEST_NUM_THREADS,
    JaxTestLoader as JaxTestLoader,
    is_running_under_pytest as is_running_under_pytest,
    thread_unsafe_test as thread_unsafe_test,
    thread_unsafe_test_class as thread_unsafe_test_class,
)
from tinyxla.jax.testing.tolerances import (
    ToleranceDict as ToleranceDict,
    assert_numpy_allclose as _assert_numpy_allclose,
    check_close as check_close,
    check_dtypes_match as _check_dtypes_match,
    check_eq as check_eq,
    check_grads as check_grads,
    check_jvp as check_jvp,
    check_vjp as check_vjp,
    default_gradient_tolerance as default_gradient_tolerance,
    default_tolerance as default_tolerance,
    dtype_of as _dtype,
    join_tolerance as join_tolerance,
    rand_like as rand_like,
    tolerance as tolerance,
)
from tinyxla.jax.testing.warning_records import ignore_warning as ignore_warning


def jaxlib_version():
    """The version of jaxlib whose interface is followed."""
    return parse_version(JAX_VERSION)
