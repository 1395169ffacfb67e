"""Why rows are behind, by their names: written by hand, from measurements, and printed with the tables."""

_TWO_SORTS = (
    "JAX's values, which are kept, are those of two stable sorts by random words: all of the first, and of the second "
    "what is taken."
)
_PYTHON = (
    "A call costs 2 us of Python, in which types, shapes and weakness are looked up and the result is wrapped; NumPy's "
    "is C alone."
)

_CODE = "the rest is code, and what LLVM needed to make it."

WHY: dict[str, str] = {
    "x + y, 1e5": "10.4 us beside 7.5 of PyTorch's and 20 of NumPy's in processes of their own; 2.6 us are those of a "
    "call.",
    "overwriting 2000 rows": "At best 142 us beside 147 of PyTorch's in processes of their own, in the median 186 "
    "beside 156.",
    "power, 1e6": "On one thread 1.28 ns for an element, beside 0.67 ns of NumPy's; two threads are about level.",
    "mean of columns, 128 MB": "Runs differ: 3.2 to 5.8 ms within two days, beside a limit of 3.8 to 4.4.",
    "cumulative sum of columns, 128 MB": "At the limit of runs in which the memory was found to give 30 GB/s, not 36.",
    "x + x.T, 120 MB": "Runs differ: 7.6 to 11.6 ms on the same day, beside a limit of 8.1.",
    "matmul, 256 x 256": "125 us beside 107 of PyTorch's in processes of their own.",
    "tensordot, 64 x 32 x 48 over two axes": "The second array is put in order first, which takes 40 of 150 us.",
    "triangular solve, 512 x 512, 64 sides": "Runs differ: one before had 214 us beside 220 us of NumPy's.",
    "eigh, 128 x 128": "It is LAPACK's syevd, in the library that SciPy brings; PyTorch brings another one.",
    "sum, 4096 x 1024": f"17 MB are the array; {_CODE}",
    "matmul, 512 x 512, bf16": "Runs differ: one before had 749 us beside 694 us of PyTorch's.",
    "inner product, 1e6": f"8 MB are the arrays; {_CODE}",
    "FFT and back, 256 x 256": "1.15 times as long in processes of their own; PyTorch's is Intel's library.",
    "choice of 1e5 of 1e6 without replacement": _TWO_SORTS,
    "gamma numbers, 1e5": "JAX's values, which are kept, take a key of its own for each number, and a hash of 20 "
    "rounds for each that its loop rejects; NumPy's generator takes a multiplication.",
    "gather of 1e6 elements of 1e6": "A plain loop in C, AVX-512 gathers and both mixed take 1.02 to 1.07 ms on one "
    "thread, with prefetching 2.05 ms.",
    "moving average of 100, 1e6": "JAX's measure varies: in the median of five runs it needs 26.6 MB.",
    "sum, 1e5": f"0.4 MB are the array; {_CODE}",
    "max of columns, 4096 x 1024": f"17 MB are the array; {_CODE}",
    "argmax, 4e6": f"16 MB are the array; {_CODE}",
    "convolution 3 x 3 of digits, 64 x 28 x 28, 1 to 32": f"6.6 MB are the arrays; {_CODE}",
    "matmul, 1000 of 16 x 16": f"3 MB are arrays; {_CODE}",
    "top 10 of rows, 64 x 10000": f"2.6 MB are the array; {_CODE}",
    "sort of integers, 1e6": "12 MB are arrays and a copy of the keys; JAX's measure varies from 14 to 22 MB.",
    "sort of rows, 1000 x 1000": "8 MB are arrays; the rest is code. In the median of five runs JAX needs 14.8 MB.",
    "sort of columns, 1000 x 1000": "8 MB are arrays; the rest is code. In the median of five runs JAX needs 14.8 MB.",
    "eager: a + a, 1e3": _PYTHON,
    "eager: a[1:], 1e3": "0.4 us of Python: the index is read and the result is wrapped; NumPy's call is C alone.",
    "eager: sin(a), 1e3": _PYTHON,
    "eager: sum(a, 1), 30 x 30": "5 us of Python: axes, types and weakness; NumPy's part is 1.5 us.",
    "eager: a @ a, 32 x 32": "6 us of Python: shapes, types and weakness; NumPy's part is 1.6 us.",
    "import": "93 ms of processor time beside NumPy's 86: named tuples take 20 to 24 of them, dataclasses 16.",
    "exp, 1e6": "It is below the limit: Runs differ, one before had 198 us beside 205 us of PyTorch's.",
    "GELU, 1e6": "It is at the limit: PyTorch's run found more bandwidth than was measured.",
    "mean of rows, 4096 x 1024": "Runs differ: one before had 368 us beside 349 us of PyTorch's.",
    "matmul, 256 x 256, s32": f"0.8 MB are arrays; {_CODE}",
    "matmul, 512 x 512, s8 to s32": f"1.6 MB are arrays; {_CODE}",
    "argmax of rows, 128 MB": "Runs differ: 5.5 ms on the same day, beside a limit of 4.8.",
    "matmul, 128 x 1024 by 1024 x 1024": "1.08 ms beside 1.12 of NumPy's in processes of their own.",
    "box filter 9 x 9, 1024 x 1024": f"8 MB are arrays; {_CODE}",
    "matmul, 512 x 512": "Runs differ: 0.91 ms beside JAX alone, where NumPy's threads do not wait for their "
    "next product.",
    "matvec, 4096 x 4096": "1.19 ms beside 1.17 of NumPy's in processes of their own.",
    "vecmat, 4096 x 4096": "1.30 ms beside 1.19 of NumPy's in processes of their own.",
    "depthwise convolution 3 x 3": "160 us beside 128 of PyTorch's in processes of their own.",
    "cos, 1e6": "At best 171 us beside 190 of PyTorch's in processes of their own.",
    "sin, 1e5": "22 us beside 22 of PyTorch's in processes of their own.",
    "log, 1e6": "At best 161 us beside 137 of PyTorch's in processes of their own, in the median 189 beside 156.",
    "eager: zeros, 3 x 3": "1.9 us of Python: shape and type are checked, and the result is wrapped; NumPy's call is C "
    "alone.",
    "sqrt, 1e6": "144 us beside 139 of PyTorch's in processes of their own.",
    "argmin of columns, 4096 x 1024": f"17 MB are the array; {_CODE}",
    "sum, 128 MB": "2.9 ms beside 3.4 of JAX's in processes of their own, since pieces ask for those that follow.",
    "matmul, 8 of 256 x 256": "0.88 ms beside 1.24 of JAX's in processes of their own.",
    "embedding of 16 x 128 tokens": "18 us beside 25 of PyTorch's in processes of their own.",
}
