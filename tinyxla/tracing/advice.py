"""What to do where the value of a traced array is asked for: advice that fits what asks."""

from __future__ import annotations

from tinyxla.errors import (
    ConcretizationError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)

_OUTSIDE = "or keep this part outside the transformed function."
_MARK = "for a Python value mark the argument static (static_argnums); "
_KNOWN = "for a Python value compute it inside of `with ensure_compile_time_eval():`; "
_STATIC = "If the value is fixed, mark the argument static (static_argnums or static_argnames of jit)"

_BY_KIND: dict[type[ConcretizationError], str] = {
    TracerBoolConversionError: (
        f"For a choice by value use lax.cond or tinyxla.numpy.where, for a loop lax.while_loop; {_MARK}{_OUTSIDE}"
    ),
    TracerIntegerConversionError: (
        f"{_STATIC}: sizes and shapes must be known when the function is traced; x.shape always is. For a loop use "
        "lax.fori_loop, for a slice of fixed size lax.dynamic_slice, to index a list make it an array by "
        f"tinyxla.numpy.asarray; {_OUTSIDE}"
    ),
    NonConcreteBooleanIndexError: (
        "Use tinyxla.numpy.where(mask, x, y), which keeps the shape, also in place of x.at[mask].set(y); or give a "
        "fixed number of results by tinyxla.numpy.nonzero(mask, size=...) and index by these. "
        f"{_STATIC}; {_OUTSIDE}"
    ),
    TracerArrayConversionError: (
        "Use the functions of tinyxla.numpy, lax or tinyxla.scipy in place of NumPy's and SciPy's; to call others on "
        f"values use pure_callback. {_STATIC}; {_OUTSIDE}"
    ),
}

_BY_WORDS: tuple[tuple[str, str], ...] = (
    (
        "depends on values",
        "Give `size=`, the number of elements of the result, if the function takes it (and `fill_value=` for what "
        f"there is not); or use tinyxla.numpy.where, which keeps the shape; {_OUTSIDE}",
    ),
    (
        "depends on the condition",
        "Give `size=`, the number of elements of the result; or use tinyxla.numpy.where, which keeps the shape; "
        f"{_OUTSIDE}",
    ),
    ("whose result's shape depends on", f"{_STATIC}; or use tinyxla.numpy.where, which keeps the shape; {_OUTSIDE}"),
    (
        "whose shape depends on its argument ",
        f"{_STATIC}: sizes must be known when the function is traced; or make a range of the largest size and mask it "
        f"by tinyxla.numpy.where; {_OUTSIDE}",
    ),
    (
        "A slice bound",
        "Use lax.dynamic_slice(x, starts, sizes) for a slice of fixed size, or tinyxla.numpy.where with a mask, such "
        f"as tinyxla.numpy.arange(n) < bound. {_STATIC}; {_OUTSIDE}",
    ),
    ("num_segments", f"Give `num_segments=`, which must be known when the function is traced; {_OUTSIDE}"),
    ("format()", f"To print values from a traced function use debug.print; or format what it returns. {_STATIC}."),
    (
        "float()",
        "Use the array itself: functions of tinyxla.numpy in place of those of `math`, and x.astype(float). "
        f"{_STATIC}; {_OUTSIDE}",
    ),
    ("int()", f"Use the array itself, or x.astype(int). {_STATIC}; {_OUTSIDE}"),
    ("complex()", f"Use the array itself, or x.astype(complex). {_STATIC}; {_OUTSIDE}"),
    ("item()", f"Use the array itself, or return it and call item() on the result. {_STATIC}; {_OUTSIDE}"),
    ("tolist()", f"Use the array itself, or return it and call tolist() on the result. {_STATIC}."),
)


def advice_for(wanted: str, error: type[ConcretizationError], is_of_arguments: bool) -> str:
    """The advice for what asks for a value (the words with which the error begins), of which this error comes. One that
    depends on no argument becomes no Python value if an argument is static."""
    for words, advice in _BY_WORDS:
        if words in wanted:
            return advice
    found = _BY_KIND.get(error, _BY_KIND[TracerBoolConversionError])
    return found if is_of_arguments else found.replace(_MARK, _KNOWN)
