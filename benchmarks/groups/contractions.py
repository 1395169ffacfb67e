"""Workloads: products, attention, factorisations, systems of equations, Fourier transforms."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Inputs, Once, Workload, normal

Generator = np.random.Generator


def _product(x: Any, y: Any) -> Any:
    return x @ y


def _across(x: Any, y: Any) -> Any:
    return x.T @ y


def _matmul(*shapes: tuple[int, ...], name: str = "", inputs: Inputs | None = None, numpy: bool = True) -> Workload:
    """A product of two arrays; `numpy` says whether NumPy has products of their type that anybody would use."""
    name = name or f"matmul, {' by '.join(' x '.join(map(str, shape)) for shape in shapes)}"
    return Workload(
        name,
        lambda tx: _product,
        inputs or normal(*shapes),
        numpy=_product if numpy else None,
        torch=lambda torch: _product,
    )


def _squares(size: int) -> Workload:
    return _matmul((size, size), (size, size), name=f"matmul, {size} x {size}")


def _integers(kind: Any, most: int, *shapes: tuple[int, ...]) -> Inputs:
    return lambda generator: tuple(generator.integers(-most, most, shape, dtype=kind) for shape in shapes)


def _in_bfloat16(tx: Any) -> Function:
    """A product of matrices that are rounded to bfloat16 first, as layers of mixed precision do it."""
    narrow = tx.numpy.bfloat16
    return lambda x, y: (x.astype(narrow) @ y.astype(narrow)).astype(tx.numpy.float32)


def _bytes_product(tx: Any) -> Function:
    return lambda x, y: tx.lax.dot(x, y, preferred_element_type=tx.numpy.int32)


def _attention(tx: Any) -> Function:
    """Softmax of the scaled products of queries and keys, times the values, for each head."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = tx.numpy.einsum("hqd,hkd->hqk", q, k) / np.float32(q.shape[-1] ** 0.5)
        return tx.numpy.einsum("hqk,hkd->hqd", tx.nn.softmax(scores), v)

    return attention


def _attention_gradient(tx: Any) -> Function:
    attention = _attention(tx)
    return tx.grad(lambda q, k, v: tx.numpy.sum(attention(q, k, v) ** 2), (0, 1, 2))


def _torch_attention(torch: Any) -> Function:
    return torch.nn.functional.scaled_dot_product_attention


def _torch_attention_gradient(torch: Any) -> Function:
    attention = _torch_attention(torch)

    def gradient(*operands: Any) -> Any:
        operands = tuple(x.detach().requires_grad_() for x in operands)
        return torch.autograd.grad((attention(*operands) ** 2).sum(), operands)

    return gradient


def _dense(tx: Any) -> Function:
    return lambda x, weights, bias: tx.nn.gelu(x @ weights + bias)


def _torch_dense(torch: Any) -> Function:
    return lambda x, weights, bias: torch.nn.functional.gelu(torch.addmm(bias, x, weights), approximate="tanh")


def _gram(x: Any) -> Any:
    return x.T @ x


def _regression(xp: Any) -> Function:
    """Least squares by the normal equations."""
    return lambda x, y: xp.linalg.solve(x.T @ x, x.T @ y)


def _distances(xp: Any, x: Any, y: Any) -> Any:
    """Between all rows of two matrices, through their product."""
    squares = xp.sum(x * x, 1)[:, None] + xp.sum(y * y, 1)[None] - 2 * (x @ y.T)
    return xp.sqrt(xp.maximum(squares, 0))


def _torch_distances(torch: Any) -> Function:
    return lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist")


def _definite(count: tuple[int, ...], size: int) -> Inputs:
    """Positive definite matrices."""

    def inputs(generator: Generator) -> tuple[Any, ...]:
        x = generator.standard_normal((*count, size, size), dtype=np.float32)
        return (x @ np.swapaxes(x, -1, -2) + size * np.eye(size, dtype=np.float32),)

    return inputs


def _system(count: tuple[int, ...], size: int, sides: int) -> Inputs:
    """Matrices far from singular, and right-hand sides."""

    def inputs(generator: Generator) -> tuple[Any, ...]:
        a = generator.standard_normal((*count, size, size), dtype=np.float32) + size * np.eye(size, dtype=np.float32)
        return a, generator.standard_normal((*count, size, sides), dtype=np.float32)

    return inputs


def _linalg(name: str, function: str, inputs: Inputs) -> Workload:
    """A function of this name in `numpy.linalg` of every library."""
    return Workload(
        name,
        lambda tx: getattr(tx.numpy.linalg, function),
        inputs,
        numpy=getattr(np.linalg, function),
        torch=lambda torch: getattr(torch.linalg, function),
    )


def _triangular_solve(tx: Any) -> Function:
    return lambda a, b: tx.scipy.linalg.solve_triangular(a, b, lower=True)


def _numpy_triangular_solve(a: Any, b: Any) -> Any:
    import scipy.linalg  # here, since the other rows do without it

    return scipy.linalg.solve_triangular(a, b, lower=True, check_finite=False)


def _torch_triangular_solve(torch: Any) -> Function:
    return lambda a, b: torch.linalg.solve_triangular(a, b, upper=False)


def _symmetric(size: int) -> Inputs:
    def inputs(generator: Generator) -> tuple[Any, ...]:
        x = generator.standard_normal((size, size), dtype=np.float32)
        return (x + x.T,)

    return inputs


def _gaussian_process(tx: Any) -> Function:
    """The gradient of a Gaussian process's likelihood by the length and the scale of its kernel."""

    def likelihood(parameters: Any, x: Any, y: Any) -> Any:
        length, scale = tx.numpy.exp(parameters[0]), tx.numpy.exp(parameters[1])
        apart = (x[:, None] - x[None]) / length
        covariance = scale * tx.numpy.exp(-0.5 * apart * apart) + 0.1 * tx.numpy.eye(x.shape[0])
        root = tx.numpy.linalg.cholesky(covariance)
        whitened = tx.scipy.linalg.solve_triangular(root, y, lower=True)
        return -0.5 * whitened @ whitened - tx.numpy.sum(tx.numpy.log(tx.numpy.diag(root)))

    return tx.grad(likelihood)


def _torch_gaussian_process(torch: Any) -> Function:
    def gradient(parameters: Any, x: Any, y: Any) -> Any:
        parameters = parameters.detach().requires_grad_()
        length, scale = torch.exp(parameters[0]), torch.exp(parameters[1])
        apart = (x[:, None] - x[None]) / length
        covariance = scale * torch.exp(-0.5 * apart * apart) + 0.1 * torch.eye(x.shape[0])
        root = torch.linalg.cholesky(covariance)
        whitened = torch.linalg.solve_triangular(root, y[:, None], upper=False)[:, 0]
        value = -0.5 * whitened @ whitened - torch.log(torch.diagonal(root)).sum()
        return torch.autograd.grad(value, parameters)[0]

    return gradient


def _fft(xp: Any) -> Function:
    return lambda x: xp.abs(xp.fft.fft(x))


def _fft2(xp: Any) -> Function:
    return lambda x: xp.fft.ifft2(xp.fft.fft2(x)).real


def _rfft(xp: Any) -> Function:
    return lambda x: xp.fft.rfft(x)


def _everywhere(name: str, make: Function, inputs: Inputs, **more: Any) -> Workload:
    """A computation `make(xp)` that reads the same for the array functions of every library."""
    return Workload(name, lambda tx: make(tx.numpy), inputs, numpy=make(np), torch=make, **more)


def _einsum(equation: str, name: str, *shapes: tuple[int, ...]) -> Workload:
    return _everywhere(name, lambda xp: partial(xp.einsum, equation), normal(*shapes))


_HEADS = ((8, 256, 64),) * 3

WORKLOADS: tuple[Workload | Calls | Once, ...] = (
    *map(_squares, (256, 512, 1024)),
    _matmul((20_000, 64), (64, 64)),
    _matmul((64, 20_000), (20_000, 64)),
    _matmul((2, 784), (784, 512)),
    _matmul((4, 768), (768, 3072)),
    _matmul((128, 1024), (1024, 1024)),
    _matmul((300, 3000), (3000, 3000)),
    _everywhere("gradient of weights, 1024 of 768 to 3072", lambda xp: _across, normal((1024, 768), (1024, 3072))),
    _matmul((4096, 4096), (4096,), name="matvec, 4096 x 4096"),
    _matmul((4096,), (4096, 4096), name="vecmat, 4096 x 4096"),
    _matmul((64, 64, 64), (64, 64, 64), name="matmul, 64 of 64 x 64"),
    _matmul((1000, 16, 16), (1000, 16, 16), name="matmul, 1000 of 16 x 16"),
    _matmul((8, 256, 256), (8, 256, 256), name="matmul, 8 of 256 x 256"),
    Workload(
        "matmul, 512 x 512, bf16",
        _in_bfloat16,
        normal((512, 512), (512, 512)),
        torch=lambda torch: lambda x, y: (x.bfloat16() @ y.bfloat16()).float(),
    ),
    _matmul(name="matmul, 256 x 256, s32", inputs=_integers(np.int32, 1000, (256, 256), (256, 256))),
    Workload("matmul, 512 x 512, s8 to s32", _bytes_product, _integers(np.int8, 100, (512, 512), (512, 512))),
    _matmul((1_000_000,), (1_000_000,), name="inner product, 1e6"),
    _everywhere("outer product, 2000 x 2000", lambda xp: xp.outer, normal((2000,), (2000,))),
    _einsum("bqhd,bkhd->bhqk", "einsum bqhd,bkhd->bhqk, 2 x 256 x 8 x 64", (2, 256, 8, 64), (2, 256, 8, 64)),
    Workload(
        "tensordot, 64 x 32 x 48 over two axes",
        lambda tx: lambda x, y: tx.numpy.tensordot(x, y, ((1, 2), (1, 0))),
        normal((64, 32, 48), (48, 32, 128)),
        numpy=lambda x, y: np.tensordot(x, y, ((1, 2), (1, 0))),
        torch=lambda torch: lambda x, y: torch.tensordot(x, y, ((1, 2), (1, 0))),
    ),
    Workload("attention, 8 heads, 256 x 64", _attention, normal(*_HEADS), torch=_torch_attention),
    Workload(
        "gradient of attention, 8 heads, 256 x 64",
        _attention_gradient,
        normal(*_HEADS),
        torch=_torch_attention_gradient,
    ),
    Workload(
        "dense layer with gelu, 512 x 256 to 1024",
        _dense,
        normal((512, 256), (256, 1024), (1024,)),
        torch=_torch_dense,
    ),
    Workload(
        "Gram matrix, 4096 x 256",
        lambda tx: _gram,
        normal((4096, 256)),
        numpy=_gram,
        torch=lambda torch: _gram,
    ),
    _everywhere("normal equations, 10000 x 50", _regression, normal((10_000, 50), (10_000,))),
    Workload(
        "pairwise distances, 1000 x 64",
        lambda tx: partial(_distances, tx.numpy),
        normal((1000, 64), (1000, 64)),
        numpy=partial(_distances, np),
        torch=_torch_distances,
    ),
    Workload(
        "Cholesky, 300 x 300",
        lambda tx: lambda x: tx.numpy.linalg.cholesky(x @ x.T + 300 * tx.numpy.eye(300)),
        normal((300, 300)),
        numpy=lambda x: np.linalg.cholesky(x @ x.T + 300 * np.eye(300, dtype=np.float32)),
        torch=lambda torch: lambda x: torch.linalg.cholesky(x @ x.T + 300 * torch.eye(300)),
    ),
    _linalg("Cholesky, 500 of 16 x 16", "cholesky", _definite((500,), 16)),
    _linalg("solve, 300 x 300", "solve", _system((), 300, 10)),
    Workload(
        "1,000 systems of 4",
        lambda tx: lambda a, b: tx.numpy.linalg.solve(a + 4 * tx.numpy.eye(4), b),
        normal((1000, 4, 4), (1000, 4, 1)),
        numpy=lambda a, b: np.linalg.solve(a + 4 * np.eye(4, dtype=np.float32), b),
        torch=lambda torch: lambda a, b: torch.linalg.solve(a + 4 * torch.eye(4), b),
    ),
    Workload(
        "triangular solve, 512 x 512, 64 sides",
        _triangular_solve,
        _system((), 512, 64),
        numpy=_numpy_triangular_solve,
        torch=_torch_triangular_solve,
    ),
    _linalg("QR, 256 x 64", "qr", normal((256, 64))),
    _linalg("eigh, 128 x 128", "eigh", _symmetric(128)),
    Workload(
        "spectral radius, 100 x 100",
        lambda tx: lambda x: tx.numpy.abs(tx.numpy.linalg.eigvals(x)).max(),
        normal((100, 100)),
        numpy=lambda x: np.abs(np.linalg.eigvals(x)).max(),
        torch=lambda torch: lambda x: torch.linalg.eigvals(x).abs().max(),
    ),
    Workload(
        "SVD, 128 x 128",
        lambda tx: partial(tx.numpy.linalg.svd, full_matrices=False),
        normal((128, 128)),
        numpy=partial(np.linalg.svd, full_matrices=False),
        torch=lambda torch: partial(torch.linalg.svd, full_matrices=False),
    ),
    _linalg("determinants, 64 of 64 x 64", "det", normal((64, 64, 64))),
    _linalg("inverse, 64 x 64", "inv", _definite((), 64)),
    Workload(
        "gradient of a Gaussian process, 200 points",
        _gaussian_process,
        normal((2,), (200,), (200,)),
        torch=_torch_gaussian_process,
    ),
    _everywhere("FFT of rows, 64 x 4096", _fft, normal((64, 4096))),
    _everywhere("FFT and back, 256 x 256", _fft2, normal((256, 256))),
    _everywhere("real FFT, 1e6", _rfft, normal((1_000_000,))),
)
