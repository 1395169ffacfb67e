"""Templates of `nn`, `nn.initializers`, `random`, `image`, `ops` and `scipy`."""

from __future__ import annotations

_UNIT, _POSITIVE = "{float S unit}", "{float S positive}"
_ALONG = "({float S}<<, axis={?{axis}|{axes}}>><<, where={bool S~}>>)"

NN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("softmax log_softmax".split(), (_ALONG,)),
    **dict.fromkeys(
        "logsumexp".split(),
        (
            "({inexact S}<<, axis={?None|{axis}|{axes}}>><<, keepdims=True>><<, where={bool S~}>>)",
            "({float S}, b={float S~}<<, axis={axis}>><<, return_sign=True>>)",
            "({any S})",
        ),
    ),
    "logmeanexp": ("({inexact S}<<, axis={?None|{axis}|{axes}}>><<, keepdims=True>><<, where={bool S~}>>)",),
    "standardize": ("({float S}<<, axis={?{axis}|{axes}}>><<, epsilon={?1e-3|0.1}>><<, where={bool S~}>>)",),
    "glu": ("({float 4,6}<<, axis={?0|1}>>)",),
    "one_hot": ("({int S natural:5}, {?5|3|0}<<, axis={?0|-1}>><<, dtype={dtype}>>)", "({i32 S}, 4)"),
    "dot_product_attention": (
        "({float 2,5,3,4}, {float 2,7,3,4}, {float 2,7,3,4}<<, is_causal={?True|False}>><<, scale=0.7>>)",
        "({float 5,4,3}, {float 7,2,3}, {float 7,2,3}<<, bias={float 1,4,5,7}>><<, mask={bool 1,4,5,7}>>)",
        "({float 2,5,3,4}, {float 2,5,3,4}, {float 2,5,3,4}, local_window_size={?2|(1, 0)})",
        "({float 2,5,3,4}, {float 2,5,3,4}, {float 2,5,3,4}, query_seq_lengths={i32 2 count:6}, key_value_seq_lengths={i32 2 count:6})",
    ),
    **dict.fromkeys("relu relu6 sigmoid silu swish soft_sign softplus identity tanh hard_tanh".split(), ("({any S})",)),
}

_INITIALIZER = "(<<dtype={ftype}>>)({key}, {?(3, 4)|(2, 3, 4)})"
INITIALIZERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal lecun_uniform "
        "xavier_normal xavier_uniform normal uniform truncated_normal orthogonal".split(),
        (_INITIALIZER,),
    ),
    "constant": ("({?1.5|0})({key}, {shape})",),
    "delta_orthogonal": ("()({key}, (3, 2, 4))",),
    "ones": ("({key}, {shape}<<, {dtype}>>)",),
    "zeros": ("({key}, {shape}<<, {dtype}>>)",),
    "variance_scaling": (
        "({?1.0|2.0}, '{?fan_in|fan_out|fan_avg}', '{?normal|uniform|truncated_normal}')({key}, {?(3, 4)|(2, 3, 4)})",
    ),
}

_DRAW = "<<, shape={shape}>><<, dtype={ftype}>>"
RANDOM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("PRNGKey",), ("({?0|1|-1|4294967295|{i32 -}})",)),
    **dict.fromkeys(
        "cauchy exponential gumbel laplace logistic maxwell normal uniform".split(), ("({key}" + _DRAW + ")",)
    ),
    **dict.fromkeys(
        "chisquare gamma loggamma pareto rayleigh t wald".split(),
        ("({key}, {f32 3 positive})", "({key}, {?0.7|2.5}" + _DRAW + ")"),
    ),
    **dict.fromkeys("beta f".split(), ("({key}, {f32 3 positive}, {f32 3 positive})", "({key}, 2.0, 0.5" + _DRAW + ")")),
    "uniform": ("({key}" + _DRAW + ")", "({key}, (3,), minval={f32 -}, maxval={f32 3})"),
    "ball": ("({key}, {?1|3}<<, p={?1|2}>><<, shape={?(2,)|()}>>)",),
    "bernoulli": ("({key}<<, {?0.3|{f32 3 unit}}>>)", "({key}, 0.5, {shape})"),
    "binomial": ("({key}, {?7.0|{f32 3 positive}}, {?0.3|{f32 3 unit}})",),
    "bits": ("({key}<<, {shape}>><<, dtype='{?uint8|uint16|uint32}'>>)",),
    "categorical": ("({key}, {float 3,4}<<, axis={?0|-1}>>)", "({key}, {float 5}, shape=(3,)<<, replace={?True|False}>>)"),
    "choice": (
        "({key}, {?7|{any 5}}<<, shape={?(3,)|()|(2, 2)}>><<, replace={?True|False}>>)",
        "({key}, 4, (3,), p={f32 4 probability}<<, replace={?True|False}>>)",
        "({key}, {any 3,4}, (2,), axis={?0|1})",
    ),
    "clone": ("({key})",),
    "key_data": ("({key})",),
    "dirichlet": ("({key}, {f32 2,3 positive})", "({key}, {f32 3 positive}, shape=(4,))"),
    "double_sided_maxwell": ("({key}, 0.5, 2.0" + _DRAW + ")",),
    "fold_in": ("({key}, {?0|7|{u32 -}})",),
    "generalized_normal": ("({key}, {?1.5|3.0}" + _DRAW + ")",),
    "geometric": ("({key}, {?0.3|{f32 3 unit}})",),
    "lognormal": ("({key}<<, {?0.3|2.0}>>" + _DRAW + ")",),
    "multinomial": ("({key}, {?7|20.0}, {f32 4 probability})",),
    "multivariate_normal": (
        "({key}, {float 3}, {float 3,3 spd}<<, method='{?cholesky|eigh|svd}'>>)",
        "({key}, {float 2,3}, {float 3,3 spd}, shape=(2,))",
    ),
    "orthogonal": ("({key}, {?1|3}<<, shape={?(2,)|()}>>)",),
    "permutation": ("({key}, {?0|1|7|{any 5}})", "({key}, {any 3,4}<<, axis={?0|1}>><<, independent={?True|False}>>)"),
    "poisson": ("({key}, {?0.5|3.0|40.0|{f32 3 positive}})",),
    "rademacher": ("({key}<<, {shape}>><<, dtype={?'int8'|'float32'}>>)",),
    "randint": ("({key}, {shape}, {?0|-5}, {?1|7|100}<<, dtype='{?int8|uint8|int16|uint32}'>>)", "({key}, (3,), {i32 - small}, {i32 3})"),
    "split": ("({key}<<, {?1|3|(2, 2)}>>)",),
    "triangular": ("({key}, 0.0, 0.5, 2.0" + _DRAW + ")",),
    "truncated_normal": ("({key}, -1.0, {?0.5|2.0}" + _DRAW + ")", "({key}, {f32 3} - 3, {f32 3} + 3)"),
    "weibull_min": ("({key}, 0.5, 2.0" + _DRAW + ")",),
}  # fmt: skip

IMAGE: dict[str, tuple[str, ...]] = {
    "resize": ("({float 5,7}, {?(3, 4)|(9, 7)|(5, 14)}, '{?nearest|linear|cubic|lanczos3|lanczos5}'<<, antialias={?True|False}>>)",),
    "scale_and_translate": ("({float 5,7}, (4, 6), (0, 1), {f32 2 positive}, {f32 2 unit}, '{?linear|cubic}')",),
}  # fmt: skip

_SEGMENT = "({number 7,3}, {i32 7 natural:4}<<, num_segments={?4|6|3}>><<, mode='{?drop|fill}'>>)"
OPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("segment_sum segment_prod".split(), (_SEGMENT,)),
    **dict.fromkeys("segment_max segment_min".split(), (_SEGMENT.replace("number", "real"),)),
}

_WELL, _HERMITIAN, _SPD = "({inexact *B,N,N well})", "({inexact N,N hermitian})", "({inexact *B,N,N spd})"
SCIPY_LINALG: dict[str, tuple[str, ...]] = {
    "block_diag": ("({any 2,3}, {any 1,2}, {any 3})",),
    "cho_factor": ("({inexact *B,N,N spd}<<, lower={?True|False}>>)",),
    "cho_solve": ("(({inexact N,N upper}, False), {inexact N,K})",),
    "cholesky": ("({inexact *B,N,N spd}<<, lower={?True|False}>>)",),
    "circulant": ("({any N})",),
    "companion": ("({number 4 positive})",),
    "det": (_WELL,),
    "dft": ("({?1|4|5}<<, {?'sqrtn'|'n'}>>)",),
    "eigh": ("({inexact *B,N,N hermitian}<<, lower={?True|False}>>)", "({inexact N,N hermitian}, eigvals_only=True)"),
    "expm": ("({inexact *B,N,N normal})", "({float N,N upper}, upper_triangular=True)"),
    "hadamard": ("({?1|4|8}<<, dtype='{?int32|float32}'>>)",),
    "hankel": ("({any N}<<, {any M}>>)",),
    "hilbert": ("({?0|1|4})",),
    "pascal": ("({?0|1|5}<<, kind='{?lower|upper|symmetric}'>>)",),
    "inv": (_WELL,),
    "leslie": ("({number 4}, {number 3})",),
    "lu": ("({inexact *B,N,M well}<<, permute_l={?True|False}>>)",),
    "lu_factor": (_WELL,),
    "lu_solve": ("(jx.scipy.linalg.lu_factor({inexact N,N well}), {inexact N,K}<<, trans={?0|1|2}>>)",),
    "polar": ("({inexact N,N well}<<, side='{?left|right}'>>)",),
    "qr": ("({inexact *B,N,M well}<<, mode='{?full|economic|r}'>>)",),
    "solve": (
        "({inexact *B,N,N well}, {inexact *B,N,K})",
        "({inexact N,N spd}, {inexact N}, assume_a='pos'<<, lower=True>>)",
    ),
    "solve_triangular": (
        "({inexact N,N upper}, {inexact N,K}<<, trans={?0|1|2|'T'}>><<, unit_diagonal={?True|False}>>)",
        "({inexact N,N well}, {inexact N}, lower=True)",
    ),
    "sqrtm": ("({inexact N,N spd})",),
    "svd": (
        "({inexact *B,N,M well}<<, full_matrices={?True|False}>>)",
        "({inexact N,M well}, compute_uv=False)",
    ),
    "toeplitz": ("({any N}<<, {any M}>>)",),
}

_SPECTRA = "<<, fs={?2.0|10}>><<, window='{?hann|boxcar}'>>, nperseg=8<<, noverlap={?4|2}>>"
SCIPY: dict[str, dict[str, tuple[str, ...]]] = {
    "scipy.cluster.vq": {"vq": ("({float 5,3}, {float 2,3})",)},
    "scipy.fft": {
        **dict.fromkeys("dct idct".split(), ("({float S}<<, type=2>><<, n={?3|8}>><<, axis={axis}>><<, norm='ortho'>>)",)),
        **dict.fromkeys("dctn idctn".split(), ("({float 3,4}<<, s={?(2, 4)|(4, 3)}>><<, axes=(0, 1)>><<, norm='ortho'>>)",)),
    },
    "scipy.integrate": {"trapezoid": ("({number S}<<, dx={?2.0|0.5}>><<, axis={axis}>>)", "({float 5}, {f32 5 sorted})")},
    "scipy.ndimage": {
        "map_coordinates": ("({number 4,5}, [{f32 7}, {f32 7}], {?0|1}<<, mode='{?constant|nearest|wrap|mirror|reflect}'>><<, cval=2.0>>)",)
    },
    "scipy.optimize": {
        "minimize": ("(lambda u: ((u - 1.0) ** 2).sum() + u[0] * u[1] * 0.1, {f32 2 small}, method='BFGS').x",)
    },
    "scipy.signal": {
        **dict.fromkeys("convolve correlate fftconvolve".split(), ("({float 7}, {float 3}<<, mode='{?full|same|valid}'>>)", "({float 4,5}, {float 2,3}<<, mode='{?full|same|valid}'>>)", "({number 5}, {number 3})")),
        **dict.fromkeys("convolve2d correlate2d".split(), ("({number 4,5}, {number 2,3}<<, mode='{?full|same|valid}'>>)",)),
        "csd": ("({float 20}, {float 20}" + _SPECTRA + ")",),
        "welch": ("({float 20}" + _SPECTRA + "<<, detrend={?False|'linear'}>>)",),
        "detrend": ("({float S}<<, axis={axis}>><<, type='{?linear|constant}'>>)",),
        "stft": ("({float 20}" + _SPECTRA + ")",),
        "istft": ("({complex 5,6}, nperseg=8)",),
    },
    "scipy.sparse.linalg": dict.fromkeys(
        "bicgstab cg gmres".split(),
        ("({float 4,4 spd}, {float 4}, tol=1e-6)[0]", "(lambda v: 2.0 * v, {float 4}, tol=1e-6)[0]"),
    ),
    "scipy.special": {
        **NN,
        "bernoulli": ("({?0|1|2|7})",),
        "bessel_jn": ("({f32 3 positive}, v={?0|1|3})",),
        "betainc": ("({float S positive}, {float S~ positive}, {float S unit})",),
        "boxcox": ("({float S positive}, {float S~ small})",),
        "boxcox1p": ("({float S positive}, {float S~ small})",),
        "comb": ("({int S natural:9}, {int S natural:9}<<, repetition=True>>)", "({float S positive}, {float S positive})"),
        **dict.fromkeys("gammainc gammaincc".split(), ("({float S positive}, {float S~ positive})", "({float S}, {float S~})")),
        "expn": ("({i32 S natural:5}, {float S positive})",),
        "factorial": ("({int S natural:9})", "({float S})"),
        "fresnel": ("({float S})",),
        "hyp1f1": ("({float S positive}, {float S positive}, {float S small})",),
        "hyp2f1": ("({float S positive}, {float S positive}, {float S positive}, {float S unit})",),
        "kl_div": (f"({_POSITIVE}, {_POSITIVE})", "({real S}, {real S~})"),
        "rel_entr": (f"({_POSITIVE}, {_POSITIVE})", "({real S}, {real S~})"),
        "multigammaln": ("({float S positive} + 3, {?1|2|3})",),
        "owens_t": ("({float S}, {float S~})",),
        "poch": ("({float S positive}, {float S positive})",),
        "polygamma": ("({i32 S natural:4}, {float S positive})", "({?0|1|2}, {float S})"),
        "zeta": ("({float S positive} + 1.5, {float S positive})", "({float S}, {float S~})"),
        "ndtri": (f"({_UNIT})", "({real S})"),
        "logit": (f"({_UNIT})", "({real S})"),
    },
    "scipy.stats": {
        "mode": ("({real S small}<<, axis={?None|{axis}}>><<, keepdims=True>>)",),
        "rankdata": ("({real S}<<, method='{?average|min|max|dense|ordinal}'>><<, axis={axis}>>)",),
        "sem": ("({real S}<<, axis={?None|{axis}}>><<, ddof={?0|1}>><<, keepdims=True>>)",),
    },
}  # fmt: skip

_K, _P = "{i32 S natural:6}", "{float S unit}"
_X, _OPTIONAL_SCALE = "{float S}", "<<, loc={?0.5|{float S~}}>><<, scale={?2.0|{float S~ positive}}>>"
# The arguments of a family's densities: its shape parameters, then location and scale.
FAMILIES: dict[str, str] = {
    "bernoulli": f"({_K}, {_P}<<, loc={{?0|1}}>>)",
    "beta": f"({_UNIT}, {_POSITIVE}, {_POSITIVE}{_OPTIONAL_SCALE})",
    "betabinom": f"({_K}, {{i32 S count:9}}, {_POSITIVE}, {_POSITIVE}<<, loc={{?0|1}}>>)",
    "binom": f"({_K}, {{i32 S count:9}}, {_P}<<, loc={{?0|1}}>>)",
    **dict.fromkeys("cauchy expon gumbel_l gumbel_r laplace logistic norm uniform".split(), f"({_X}{_OPTIONAL_SCALE})"),
    **dict.fromkeys("chi2 gamma t gennorm pareto".split(), f"({_X}, {_POSITIVE}{_OPTIONAL_SCALE})"),
    "geom": f"({_K}, {_P}<<, loc={{?0|1}}>>)",
    "nbinom": f"({_K}, {{i32 S count:9}}, {_P}<<, loc={{?0|1}}>>)",
    "poisson": f"({_K}, {_POSITIVE}<<, loc={{?0|1}}>>)",
    "truncnorm": f"({_X}, {{float S small}} - 4, {{float S small}} + 4{_OPTIONAL_SCALE})",
    "vonmises": f"({_X}, {_POSITIVE})",
    "wrapcauchy": f"({_X}, {_UNIT})",
    "dirichlet": "({float 3 probability}, {float 3 positive})",
    "multinomial": "(np.array([1, 2, 3]), {?6|{i32 -}}, {float 3 probability})",
    "multivariate_normal": "({float *B,3}, {float 3}, {float 3,3 spd})",
}
# Quantiles take a probability instead.
QUANTILES = ("ppf", "isf")
