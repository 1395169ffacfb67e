"""Templates of methods of arrays, of operators and of classes, which are no functions of a module."""

from __future__ import annotations

_AXIS, _AXES = "<<{axis}>>", "<<axis={?None|{axis}|{axes}}>>"
_FIRST = "jx.numpy.asarray(%s)"


def _methods(names: str, arguments: str, array: str = "{any S}") -> dict[str, tuple[str, ...]]:
    return {n: (f"{_FIRST % array}.{n}({arguments})",) for n in names.split()}


METHODS: dict[str, tuple[str, ...]] = {
    **_methods("sum prod max min mean std var any all ptp", _AXES),
    **_methods("cumsum cumprod argmax argmin argsort sort", _AXIS),
    **_methods("ravel flatten copy conj conjugate nonzero", "", "{any S}"),
    **_methods("transpose", ""),
    **_methods("diagonal trace", "", "{number 3,4}"),
    **_methods("swapaxes", "0, -1", "{any 2,3,4}"),
    **_methods("round", "<<{?0|1}>>", "{number S}"),
    **_methods("clip", "{?-1|0|None}<<, max={?1|2.0}>>", "{real S}"),
    **_methods("repeat", "{?0|2}", "{any S}"),
    **_methods("reshape", "{reshaped}"),
    **_methods("astype", "{dtype}"),
    **_methods("take", "np.array([0, -1, 2]), axis={?0|1}", "{any 4,5}"),
    **_methods("searchsorted", "{real S}", "np.arange(5)"),
    **_methods("compress", "np.array([True, False, True]), axis=0", "{any 3,4}"),
    **_methods("squeeze", "", "{any 1,3,1}"),
    **_methods("dot", "{number M,3}", "{number 2,M}"),
    **_methods("view", "'{?int32|uint32|uint8}'", "{f32 3,4}"),
    **{n: (f"{_FIRST % '{any S}'}.{n}",) for n in "T real imag".split()},
    "mT": (f"{_FIRST % '{any 2,3,4}'}.mT",),
}

_UPDATES = "set add multiply min max".split()
AT: dict[str, tuple[str, ...]] = {
    **{
        n: (
            f"{_FIRST % '{number 5,3}'}.at[{{?0|-1|1:4|::2|..., 1|None, 2}}].{n}({{?2|0}})",
            f"{_FIRST % '{real 5,3}'}.at[{{i32 4 index:7}}].{n}({{real 4,3}}<<, mode={{?'drop'|'clip'}}>>)",
            f"{_FIRST % '{real 5}'}.at[np.array([0, 3, 3])].{n}({{real -}})",
        )
        for n in _UPDATES
    },
    "get": (f"{_FIRST % '{any 5,3}'}.at[{{i32 4 index:7}}].get(<<mode={{?'clip'|'fill'}}>>)",),
    "divide": (f"{_FIRST % '{f32 5,3}'}.at[{{?0|-1|1:4}}].divide({{f32 -}})",),
    "power": (f"{_FIRST % '{f32 5,3}'}.at[{{?0|-1|1:4}}].power({{?2|3}})",),
    "apply": (f"{_FIRST % '{f32 5}'}.at[{{?np.array([0, 3, 3])|1:4}}].apply(jx.numpy.sin)",),
}

_OPERATORS = {
    **{n: f" {sign} " for n, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("eq", "=="), ("ne", "!="))},
    **{n: f" {sign} " for n, sign in (("truediv", "/"), ("floordiv", "//"), ("mod", "%"), ("lt", "<"), ("ge", ">="))},
}
OPERATORS: dict[str, tuple[str, ...]] = {
    **{
        n: (f"{_FIRST % '{any S}'}{sign}{{?2|1.5|{{any S~}}}}", f"{{?2|1.5}}{sign}{_FIRST % '{number S}'}")
        for n, sign in _OPERATORS.items()
    },
    "pow": (f"{_FIRST % '{number S}'} ** {{?0|1|2|3|0.5}}", f"{_FIRST % '{float S}'} ** {{float S~}}"),
    "neg": (f"-{_FIRST % '{number S}'}",),
    "invert": (f"~{_FIRST % '{bits S}'}",),
    "abs": (f"abs({_FIRST % '{number S}'})",),
    "matmul": (f"{_FIRST % '{number N,M}'} @ {{number M,K}}",),
    "and": (f"{_FIRST % '{bits S}'} & {{bits S~}}",),
    "getitem": (f"{_FIRST % '{any 5,3}'}[{{?0|-1|1:4|::-2|..., 1|None, 2|np.array([0, 4, -1])}}]",),
}

_GRID = "(np.linspace(-1.0, 2.0, 5, dtype='float32'), np.linspace(-1.5, 1.5, 4, dtype='float32'))"
INTERPOLATE: dict[str, tuple[str, ...]] = {
    "RegularGridInterpolator": (
        f"jx.scipy.interpolate.RegularGridInterpolator({_GRID}, {{f32 5,4}}, method='{{?linear|nearest}}'"
        ", bounds_error=False<<, fill_value={?None|0.5}>>)({f32 7,2 signed_unit})",
        f"jx.scipy.interpolate.RegularGridInterpolator({_GRID}, {{f32 5,4,2}}, bounds_error=False)({{f32 3,2}})",
    )
}

# Names that are not those of functions, with the calls that stand for them.
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    **{f"Array.{n}": t for n, t in METHODS.items()},
    **{f"Array.at.{n}": t for n, t in AT.items()},
    **{f"operator.{n}": t for n, t in OPERATORS.items()},
    **{f"scipy.interpolate.{n}": t for n, t in INTERPOLATE.items()},
}
