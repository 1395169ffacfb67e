"""`experimental.sparse`: every operation on every layout, next to the dense one."""

import itertools

import numpy as np
import pytest
import scipy.sparse

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    ShapeError,
    SparseRuleError,
    UnknownOptionError,
)
from tinyxla.experimental import sparse

SHAPES = [(3,), (2, 3), (2, 3, 4), (1, 3, 2)]


def _dense(shape, seed=0):
    random = np.random.default_rng(seed)
    return (random.normal(size=shape) * (random.random(shape) < 0.5)).astype(np.float32)


def _layouts(ndim):
    return [(b, d) for b in range(ndim + 1) for d in range(ndim + 1 - b)]


def _arrays(shape):
    """An array in all layouts: plain, and with padding and duplicates; and with batches that broadcast."""
    x = tnp.array(_dense(shape))
    for n_batch, n_dense in _layouts(len(shape)):
        m = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
        yield m
        padded = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense, nse=m.nse + 2)
        data = tnp.concatenate([padded.data * 0.25, padded.data * 0.75], n_batch)
        yield sparse.BCOO((data, tnp.concatenate([padded.indices] * 2, n_batch)), shape=shape)
        if n_batch:
            one = sparse.BCOO.fromdense(x[:1], n_batch=n_batch, n_dense=n_dense)
            yield sparse.BCOO((one.data, one.indices), shape=shape)


CASES = [(shape, k) for shape in SHAPES for k in range(len(list(_arrays(shape))))]


def _case(case):
    shape, number = case
    m = next(itertools.islice(_arrays(shape), number, None))
    return m, np.asarray(m.todense())


def _check(found, wanted):
    assert tuple(found.shape) == tuple(np.shape(wanted))
    if isinstance(found, sparse.BCOO):
        sparse.BCOO((found.data, found.indices), shape=found.shape)  # which checks that they fit
        found = found.todense()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def _tag(case):
    return f"{'x'.join(map(str, case[0]))}-{case[1]}"


@pytest.mark.parametrize("case", CASES[::9], ids=_tag)
def test_order_duplicates_and_layouts_keep_the_array(case):
    m, x = _case(case)
    _check(m.sort_indices(), x)
    _check(m.sum_duplicates(), x)
    _check(m.sum_duplicates(remove_zeros=False), x)
    _check(m.sum_duplicates(nse=x.size), x)
    assert m.sum_duplicates().nse <= max(m.nse, 1)
    for n_batch, n_dense in _layouts(x.ndim)[::2]:
        made = m.update_layout(n_batch=n_batch, n_dense=n_dense, on_inefficient=None)
        assert (made.n_batch, made.n_dense) == (n_batch, n_dense)
        _check(made, x)


@pytest.mark.parametrize("case", CASES[1::9], ids=_tag)
def test_reductions_and_reversals(case):
    m, x = _case(case)
    for count in range(x.ndim + 1):
        for axes in itertools.combinations(range(x.ndim), count):
            _check(sparse.bcoo_reduce_sum(m, axes=axes), x.sum(axes))
            _check(sparse.bcoo_rev(m, axes), np.flip(x, axes))


@pytest.mark.parametrize("case", CASES[::9], ids=_tag)
def test_arithmetic(case):
    m, x = _case(case)
    other = tnp.array(_dense(x.shape, 1))
    _check(-m, -x)
    _check(2 * m / 4, x / 2)
    _check(m + m, 2 * x)
    _check(m + m.sort_indices(), 2 * x)
    _check(m - m.sort_indices(), 0 * x)
    _check(m * m, x * x)
    _check(sparse.bcoo_multiply_sparse(m, m.sort_indices()), x * x)
    _check(m * other, x * np.asarray(other))
    _check(m * other[..., :1], x * np.asarray(other[..., :1]))
    _check(m * other[(0,) * (x.ndim - 1)], x * np.asarray(other[(0,) * (x.ndim - 1)]))
    _check(m + other, x + np.asarray(other))
    _check(abs(m), abs(x))
    _check(m**2, x**2)
    assert np.array_equal((m > 0).todense(), x > 0)


ZERO_PRESERVING = (
    "arcsinh arctan arctanh cbrt ceil expm1 floor log1p round sign sin sinh sqrt tan tanh arcsin abs negative"
)


@pytest.mark.parametrize("name", ZERO_PRESERVING.split())
def test_sparsify_of_a_function_that_is_zero_at_zero_is_sparse(name):
    function = getattr(tnp, name)
    scale = lambda x: abs(x * 0.2)  # noqa: E731 - into the domain of all
    for case in CASES[2::30]:
        m, x = _case(case)
        found = sparse.sparsify(lambda m: function(scale(m)))(m)
        assert isinstance(found, sparse.BCOO)
        _check(found, np.asarray(function(scale(x))))
    _check(tx.jit(sparse.sparsify(lambda m: function(scale(m))))(m), np.asarray(function(scale(x))))


@pytest.mark.parametrize("case", CASES[::9], ids=_tag)
def test_indexing_and_movement(case):
    m, x = _case(case)
    last = (Ellipsis, slice(1, 3))
    for index in (0, -1, slice(0, 1), slice(None, None, 2), slice(None, None, -1), None, (Ellipsis, 0), last):
        _check(m[index], x[index])
    _check(m[np.array([0, 0, x.shape[0] - 1])], x[[0, 0, -1]])
    _check(m[..., tnp.array([1, 0])], x[..., [1, 0]])
    _check(m.reshape(-1), x.reshape(-1))
    _check(m.reshape(*x.shape, 1), x[..., None])
    _check(m.reshape(1, *x.shape), x[None])
    whole = {"shape": (2, *x.shape), "broadcast_dimensions": tuple(range(1, x.ndim + 1))}
    _check(sparse.bcoo_broadcast_in_dim(m, **whole), np.broadcast_to(x, (2, *x.shape)))
    last = {"shape": (*x.shape, 2), "broadcast_dimensions": tuple(range(x.ndim))}
    _check(sparse.bcoo_broadcast_in_dim(m, **last), np.broadcast_to(x[..., None], (*x.shape, 2)))
    _check(sparse.sparsify(lambda m: m.T)(m), x.T)
    _check(sparse.sparsify(tnp.squeeze)(m), x.squeeze())
    for axis in range(x.ndim):
        _check(sparse.sparsify(lambda m, a=axis: tnp.concatenate([m, m], a))(m), np.concatenate([x, x], axis))
    _check(sparse.sparsify(lambda m: tnp.stack([m, m]))(m), np.stack([x, x]))
    starts, sizes = [tnp.array(1), *[0] * (x.ndim - 1)], (1, *x.shape[1:])
    _check(sparse.bcoo_dynamic_slice(m, starts, sizes), np.asarray(lax.dynamic_slice(x, starts, sizes)))


@pytest.mark.parametrize("case", CASES[2::7], ids=_tag)
def test_products_with_dense_arrays(case):
    m, x = _case(case)
    everything = tuple(range(x.ndim))
    y = _dense(x.shape, 2)
    numbers = [((everything, everything), ((), ()))]
    numbers += [(((k,), (k,)), ((), ())) for k in everything]
    numbers += [((everything[1:], everything[1:]), ((0,), (0,)))]
    numbers += [(((), ()), ((k,), (k,))) for k in everything[-1:]]
    for dims in numbers:
        _check(sparse.bcoo_dot_general(m, y, dimension_numbers=dims), np.asarray(lax.dot_general(x, y, dims)))
        _check(sparse.bcoo_dot_general(y, m, dimension_numbers=dims), np.asarray(lax.dot_general(y, x, dims)))
    _check(m @ tnp.ones(x.shape[-1]), x.sum(-1))


@pytest.mark.parametrize("case", [c for c in CASES[1::9] if len(c[0]) > 1], ids=_tag)
def test_products_of_two_sparse_arrays(case):
    m, x = _case(case)
    m = m.update_layout(n_dense=0)
    last = x.ndim - 1
    dims = (((last,), (last,)), ((), ()))
    _check(sparse.bcoo_dot_general(m, m, dimension_numbers=dims), np.tensordot(x, x, ((last,), (last,))))
    dims = (((last,), (last,)), ((0,), (0,)))
    _check(sparse.bcoo_dot_general(m, m, dimension_numbers=dims), np.asarray(lax.dot_general(x, x, dims)))


@pytest.mark.parametrize("n_batch", [0, 1, 2])
def test_sampled_product_has_the_elements_of_the_product(n_batch):
    x, y = _dense((2, 3, 4), 3), _dense((2, 4, 5), 4)
    dims = (((2,), (1,)), ((0,), (0,)))
    wanted = np.asarray(lax.dot_general(x, y, dims))
    for n_dense in range(3 - n_batch):
        m = sparse.BCOO.fromdense(tnp.array(wanted), n_batch=n_batch, n_dense=n_dense)
        data = sparse.bcoo_dot_general_sampled(x, y, m.indices, dimension_numbers=dims)
        _check(m.with_buffers(data), wanted)


@pytest.mark.parametrize("case", CASES[3::9], ids=_tag)
def test_jit_and_vmap_take_and_give_sparse_arrays(case):
    m, x = _case(case)
    _check(tx.jit(lambda m: (2 * m).sum_duplicates(nse=x.size))(m), 2 * x)
    if m.n_batch and m.indices.shape[0] == x.shape[0]:
        _check(tx.vmap(lambda m: m.todense())(m), x)
        _check(tx.vmap(lambda m: -m)(m), -x)


@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR, sparse.COO, sparse.CSR, sparse.CSC])
def test_pytree_of_placeholders_is_flattened_again(kind):
    m = kind.fromdense(tnp.eye(3))
    leaves, structure = tx.tree_util.tree_flatten(m)
    axes = tx.tree_util.tree_unflatten(structure, [0] * len(leaves))
    assert tx.tree_util.tree_structure(axes) == structure
    back = tx.tree_util.tree_map(lambda axis, x: x, axes, m)
    np.testing.assert_array_equal(back.todense(), np.eye(3))


def test_vmap_over_a_sparse_dimension_raises():
    with pytest.raises(ShapeError, match="n_batch=0 cannot be mapped"):
        tx.vmap(lambda m: m.todense())(sparse.eye(3))


@pytest.mark.parametrize("case", CASES[::9], ids=_tag)
def test_gradient_has_the_indices_of_the_argument(case):
    m, x = _case(case)
    factor = tnp.array(_dense(x.shape, 5))
    found = sparse.grad(lambda m: (m.todense() * factor).sum())(m)
    assert np.array_equal(found.indices, m.indices)
    step = 0.5
    moved = m.with_buffers(m.data + step * found.data)
    change = (moved.todense() * factor).sum() - (m.todense() * factor).sum()
    np.testing.assert_allclose(change, step * (found.data**2).sum(), rtol=1e-4, atol=1e-5)


def test_value_and_grad_and_jacobians():
    x = tnp.array(_dense((3, 4)))
    m = sparse.BCOO.fromdense(x)
    value, (by_m, by_y) = sparse.value_and_grad(lambda m, y: (m.todense() * y).sum(), argnums=(0, 1))(m, x)
    np.testing.assert_allclose(value, (x * x).sum(), rtol=1e-6)
    _check(by_m, np.asarray(x))
    _check(by_y, np.asarray(x))
    for transform in (sparse.jacfwd, sparse.jacrev, sparse.jacobian):
        found = transform(lambda m: (m.todense() ** 2).sum(0))(m)
        dense = np.einsum("ij,jc->cij", 2 * np.asarray(x), np.eye(4))
        _check(found, dense)
        assert found.shape == (4, 3, 4)


@pytest.mark.parametrize("name", ["COO", "CSR", "CSC", "BCSR"])
def test_matrices_of_other_formats(name):
    kind = getattr(sparse, name)
    x = _dense((4, 5))
    m = kind.fromdense(tnp.array(x))
    np.testing.assert_allclose(m.todense(), x)
    np.testing.assert_allclose(m.T.todense(), x.T)
    np.testing.assert_allclose(m @ tnp.ones(5), x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(m.T @ tnp.ones((4, 2)), x.T @ np.ones((4, 2)), rtol=1e-5)
    np.testing.assert_allclose(tx.jit(lambda m: m)(m).todense(), x)
    found = sparse.grad(lambda m: (m @ tnp.arange(5.0)).sum())(m)
    np.testing.assert_allclose(found.todense(), np.where(x != 0, np.arange(5.0), 0))
    assert repr(m) == f"{name}(float32[4, 5], nse={(x != 0).sum()})"
    assert not np.any(sparse.empty((4, 5), sparse_format=name.lower()).todense())


def test_matrix_vector_functions():
    x = _dense((4, 5))
    coo, csr = sparse.coo_fromdense(x), sparse.csr_fromdense(x)
    for vector, matrix, m in ((sparse.coo_matvec, sparse.coo_matmat, coo), (sparse.csr_matvec, sparse.csr_matmat, csr)):
        np.testing.assert_allclose(vector(m, np.arange(5.0, dtype=np.float32)), x @ np.arange(5.0), rtol=1e-5)
        np.testing.assert_allclose(vector(m, np.ones(4, np.float32), transpose=True), x.sum(0), rtol=1e-5)
        np.testing.assert_allclose(matrix(m, np.eye(4, dtype=np.float32), transpose=True), x.T)
        with pytest.raises(ShapeError, match="of size 5"):
            vector(m, np.ones(4, np.float32))


@pytest.mark.parametrize("k", [0, 1, -1, 2, 5])
@pytest.mark.parametrize("sparse_format", ["bcoo", "coo", "csr", "csc"])
def test_eye_is_that_of_numpy(sparse_format, k):
    np.testing.assert_array_equal(sparse.eye(3, 4, k, sparse_format=sparse_format).todense(), np.eye(3, 4, k))


def test_eye_with_batch_and_dense_dimensions():
    for n_batch, n_dense in _layouts(2):
        for k in (0, 1, -2, 7):
            m = sparse.eye(3, 4, k, n_batch=n_batch, n_dense=n_dense)
            assert (m.n_batch, m.n_dense) == (n_batch, n_dense)
            np.testing.assert_array_equal(m.todense(), np.eye(3, 4, k))


def test_from_scipy_sparse():
    x = _dense((4, 5))
    for kind in (sparse.BCOO, sparse.BCSR):
        np.testing.assert_array_equal(kind.from_scipy_sparse(scipy.sparse.csr_matrix(x)).todense(), x)


def test_random_bcoo_has_its_layout_and_unique_indices():
    m = sparse.random_bcoo(tx.random.key(0), (2, 6, 5, 3), n_batch=1, n_dense=1, nse=0.3, sorted_indices=True)
    assert (m.n_batch, m.n_dense, m.nse) == (1, 1, 9)
    assert m.sum_duplicates().nse == 9
    with pytest.raises(ArgumentError, match="between 0 and 30"):
        sparse.random_bcoo(tx.random.key(0), (6, 5), nse=31)


def test_sparsify_of_loops_branches_and_products():
    x = _dense((4, 4))
    m = sparse.BCOO.fromdense(tnp.array(x))

    def power(m, v):
        return lax.fori_loop(0, 3, lambda i, v: m @ v, v)

    np.testing.assert_allclose(sparse.sparsify(power)(m, tnp.ones(4)), x @ (x @ (x @ np.ones(4))), rtol=1e-4)
    doubled = sparse.sparsify(lambda m: lax.fori_loop(0, 3, lambda i, m: m * 2, m))(m)
    assert isinstance(doubled, sparse.BCOO)
    _check(doubled, 8 * x)
    chosen = sparse.sparsify(lambda p, m: lax.cond(p, lambda m: m * 2, lambda m: -m, m))
    _check(chosen(tnp.array(True), m), 2 * x)
    _check(tx.jit(chosen)(tnp.array(False), m), -x)
    _check(sparse.sparsify(lambda m: tnp.einsum("ij,kj->ik", m, m))(m), x @ x.T)
    _check(sparse.sparsify(lambda m: sparse.todense(m) + 1)(m), x + 1)
    slope = tx.grad(lambda v: sparse.sparsify(power)(m, v).sum())(tnp.ones(4))
    np.testing.assert_allclose(slope, x.T @ (x.T @ (x.T @ np.ones(4))), rtol=1e-4, atol=1e-5)


def test_sparsify_of_a_convolution():
    x, y = _dense((7,)), _dense((3,), 1)
    found = sparse.sparsify(lambda a, b: lax.conv_general_dilated(a, b, (1,), [(1, 2)]))(
        sparse.BCOO.fromdense(tnp.array(x)[None, None]), tnp.array(y)[None, None]
    )
    _check(found, np.correlate(np.pad(x, (1, 2)), y, "valid")[None, None])


def test_sparsify_refuses_what_would_be_dense():
    m = sparse.eye(3)
    for function in (tnp.cos, lambda m: m + 1, lambda m: 2 / m, lambda m: m == 0, tnp.cumsum):
        with pytest.raises(SparseRuleError, match=r"(?s)sparsify: .*todense"):
            sparse.sparsify(function)(m)


def test_sparsify_does_not_make_broadcasts_of_numbers():
    """A product with a traced number touches the elements only: the dense array would not fit in memory."""
    m = sparse.BCOO((tnp.ones(2), tnp.array([[0, 0], [5, 7]])), shape=(10**6, 10**6))
    found = tx.jit(lambda m, y: (m * y / 2 * 3).sum(0))(m, 2.0)
    assert found.shape == (10**6,)
    assert float(found.data.sum()) == 6.0


def test_spsolve_and_its_derivatives():
    x = _dense((4, 4)) + 3 * np.eye(4, dtype=np.float32)
    m = sparse.CSR.fromdense(tnp.array(x))
    b = tnp.arange(1.0, 5)

    def solve(data, b):
        return sparse.linalg.spsolve(data, m.indices, m.indptr, b)

    np.testing.assert_allclose(tx.jit(solve)(m.data, b), np.linalg.solve(x, b), rtol=1e-4)
    by_data, by_b = tx.grad(lambda d, b: solve(d, b).sum(), (0, 1))(m.data, b)
    transposed = np.linalg.solve(x.T, np.ones(4))
    np.testing.assert_allclose(by_b, transposed, rtol=1e-4)
    wanted = -np.outer(transposed, np.linalg.solve(x, b))
    np.testing.assert_allclose(by_data, wanted[x != 0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="entry for each row"):
        solve(m.data, tnp.ones(3))


def test_wrong_arguments_raise():
    x = tnp.array(_dense((2, 3)))
    m = sparse.BCOO.fromdense(x)
    with pytest.raises(ShapeError, match="BCOO: Invalid data shape"):
        sparse.BCOO((tnp.ones(3), tnp.zeros((2, 2), int)), shape=(4, 4))
    with pytest.raises(ShapeError, match="batch dimensions not compatible"):
        sparse.BCOO((tnp.ones((3, 2)), tnp.zeros((2, 2, 1), int)), shape=(2, 4))
    with pytest.raises(ArgumentError, match="must be integers"):
        sparse.BCOO((tnp.ones(3), tnp.zeros((3, 2))), shape=(4, 4))
    with pytest.raises(ArgumentError, match="n_batch=2 and n_dense=1"):
        sparse.BCOO.fromdense(x, n_batch=2, n_dense=1)
    with pytest.raises(ConcretizationError, match="bcoo_fromdense without nse"):
        tx.jit(sparse.BCOO.fromdense)(x)
    with pytest.raises(sparse.SparseEfficiencyError, match="increasing n_batch from 0 to 1"):
        m.update_layout(n_batch=1)
    with pytest.warns(sparse.SparseEfficiencyWarning, match="n_dense"):
        m.update_layout(n_dense=1, on_inefficient="warn")
    with pytest.raises(AttributeValueError, match="on_inefficient"):
        m.update_layout(n_batch=1, on_inefficient="no")
    with pytest.raises(ArgumentError, match="invalid permutation"):
        m.transpose((0, 0))
    with pytest.raises(ShapeError, match="equal sizes"):
        sparse.bcoo_dot_general(m, tnp.ones(2), dimension_numbers=(((1,), (0,)), ((), ())))
    with pytest.raises(ShapeError, match="cannot mix"):
        sparse.bcoo_reshape(sparse.BCOO.fromdense(x, n_batch=1), new_sizes=(6,))
    with pytest.raises(AttributeValueError, match="sparse_format='dia'"):
        sparse.eye(3, sparse_format="dia")
    with pytest.raises(ArgumentError, match="takes a BCOO array"):
        sparse.bcoo_todense(x)
    with pytest.raises(ArgumentError, match="nse is an integer, but got 'a'"):
        sparse.BCOO.fromdense(x, nse="a")
    with pytest.raises(ArgumentError, match="n_batch is an integer, but got 'a'"):
        m.update_layout(n_batch="a")
    with pytest.raises(ArgumentError, match="permutation must be a sequence, but got 3"):
        m.transpose(3)
    with pytest.raises(ArgumentError, match=r"axes can only be \(1, 0\) or None, but got 3"):
        sparse.COO.fromdense(x).transpose(3)
    with pytest.raises(ArgumentError, match=r"takes a matrix of scipy\.sparse, but got ndarray"):
        sparse.BCOO.from_scipy_sparse(np.eye(2))
    with pytest.raises(ArgumentError, match="indices must be integers, but index_dtype is float32"):
        sparse.BCSR.from_scipy_sparse(scipy.sparse.eye(2, format="csr"), index_dtype="float32")
    with pytest.raises(ArgumentError, match="takes a BCOO array"):
        sparse.BCSR.from_bcoo(x)
    with pytest.raises(ArgumentError, match="takes a function"):
        sparse.JAXSparse.apply(3, m)
    with pytest.raises(ArgumentError, match="takes a COO array"):
        sparse.coo_todense(x)
    with pytest.raises(ArgumentError, match="takes a CSR array"):
        sparse.csr_matvec(x, x[0])
    with pytest.raises(ArgumentError, match="N is an integer"):
        sparse.eye(2.5)  # type: ignore[arg-type]
    with pytest.raises(UnknownOptionError, match="nse is no option of 'bcoo'; its options are n_batch, n_dense"):
        sparse.eye(2, nse=1)
    with pytest.raises(ArgumentError, match="2 sparse dimensions"):
        sparse.bcsr_fromdense(x, n_batch=1)


@pytest.mark.parametrize("case", CASES[::9], ids=_tag)
def test_operations_do_not_depend_on_rank_promotion(case):
    m, x = _case(case)
    parts = tuple(slice(0, max(n - 1, 1)) for n in x.shape)
    with tx.numpy_rank_promotion("raise"):
        sliced, reversed_ = m[parts], sparse.bcoo_rev(m, range(x.ndim))
        begin, sizes = [0] * x.ndim, [s.stop for s in parts]
        moved = sparse.bcoo_dynamic_slice(m, begin, sizes)
    _check(sliced, x[parts])
    _check(moved, x[parts])
    _check(reversed_, np.flip(x))


def test_product_of_arrays_that_broadcast_with_dense_dimensions():
    for left, right in itertools.product([(3, 4, 2), (1, 4, 2)], [(3, 1, 1), (1, 4, 2), (1, 1, 2)]):
        x, y = tnp.array(_dense(left)), tnp.array(_dense(right, 1))
        for (b1, d1), (b2, d2) in itertools.product(_layouts(3), _layouts(3)):
            m = sparse.BCOO.fromdense(x, n_batch=b1, n_dense=d1)
            k = sparse.BCOO.fromdense(y, n_batch=b2, n_dense=d2)
            _check(m * k, np.asarray(x) * np.asarray(y))


def test_elements_without_sparse_dimensions_are_read_at_every_index():
    indices = tnp.zeros((3, 2, 0), int)
    x = tnp.array([1, 5, 9])
    m = sparse.BCOO((tnp.ones((3, 2), int), indices), shape=(3,))
    repeated = sparse.bcoo_extract(m, x, assume_unique=True)
    np.testing.assert_array_equal(repeated.data, [[1, 1], [5, 5], [9, 9]])
    np.testing.assert_array_equal(sparse.bcoo_extract(m, x, assume_unique=False).todense(), x)
    batched = (((), ()), ((0,), (0,)))
    sampled = sparse.bcoo_dot_general_sampled(x, x, indices, dimension_numbers=batched)
    np.testing.assert_array_equal(sampled, [[1, 1], [25, 25], [81, 81]])
    np.testing.assert_array_equal(sparse.BCOO.fromdense(x, n_dense=1, nse=2).todense(), x)


def test_sorted_indices_keep_batch_sizes_that_broadcast():
    random = np.random.default_rng(0)
    indices = tnp.array(random.integers(0, 5, (1, 3, 1, 6, 1)).astype(np.int32))
    data = tnp.array(random.normal(size=(1, 1, 4, 6, 2)).astype(np.float32))
    m = sparse.BCOO((data, indices), shape=(2, 3, 4, 5, 2))
    for found in (m.sort_indices(), tx.jit(sparse.bcoo_sort_indices)(m)):
        assert (found.indices.shape, found.data.shape) == ((1, 3, 1, 6, 1), (1, 3, 4, 6, 2))
        assert (np.diff(np.asarray(found.indices)[..., 0], axis=-1) >= 0).all()
        _check(found, np.asarray(m.todense()))


@pytest.mark.parametrize("multiply", [lambda n, m: n * m, lambda n, m: m * n], ids=["left", "right"])
def test_product_with_a_number_keeps_the_indices(multiply):
    m = sparse.BCOO((tnp.array([1.0, 2.0]), tnp.array([[1], [1]])), shape=(3,))
    for found in (multiply(tnp.float32(3), m), tx.jit(multiply)(tnp.float32(3), m)):
        np.testing.assert_array_equal(found.indices, m.indices)
        assert not found.unique_indices
        _check(found, [0, 9, 0])
