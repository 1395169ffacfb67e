"""The shorthand of LLVM text that is written by hand: what it stands for, and that it computes that."""

from __future__ import annotations

import ctypes
import re

import numpy as np

from tinyxla.backends.numba.emit.llvm_templates import expand_macros, load_words
from tinyxla.backends.numba.jit.engine import compile_llvm


def compiled(text: str, name: str, *types: object) -> ctypes._NamedFuncPointer:  # pyright: ignore[reportPrivateUsage]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(compile_llvm(text, (name,))[name])  # type: ignore[arg-type]


def test_text_without_shorthand_stays_but_for_comments() -> None:
    text = """@word = global i64 0  ; a (load of nothing)
define void @f(ptr %x) {
  %pair = load { i64, i64 }, ptr %x
  call void @g(ptr %x, i64 1)
  %y = phi <4 x i64> [ zeroinitializer, %a ], [ %z, %b ]
}"""
    assert expand_macros(text) == text.replace("  ; a (load of nothing)", "  ")


def test_nested_expressions_are_expanded() -> None:
    lines = expand_macros("  %s = add i64 (mul i64 %x, (sub i64 %y, 1)), (zext i32 %z to i64)").split("\n")
    assert [line.split(" = ")[1] for line in lines] == [
        "sub i64 %y, 1",
        "mul i64 %x, %nested.0",
        "zext i32 %z to i64",
        "add i64 %nested.1, %nested.2",
    ]


def test_elements_are_addresses_of_any_type() -> None:
    text = "  store <4 x float> %v, ptr %to[<4 x float> (load i64, ptr %words[3])], align 4"
    lines = [re.sub(r"%nested\.\d", "%n", line) for line in expand_macros(text).split("\n")]
    assert lines == [
        "  %n = getelementptr i64, ptr %words, i64 3",
        "  %n = load i64, ptr %n",
        "  %n = getelementptr <4 x float>, ptr %to, i64 %n",
        "  store <4 x float> %v, ptr %n, align 4",
    ]


def test_loops_in_loops_carry_values() -> None:
    """The sum of i * words[k] over i = 2, 5, 8, ... and k."""
    text = f"""
define i64 @total(ptr %table) {{
{load_words("table", ["count", "stop", "words"], "words")}
  for %i from 2 below %stop by 3  ; outer
    %before = phi i64 [ 0, %i.begin ], [ %sum, %i.end ]
    for %k from 0 below %count by 1
      %so_far = phi i64 [ %before, %k.begin ], [ %sum, %k.end ]
      %sum = add i64 %so_far, (mul i64 %i, (load i64, ptr %words[%k]))
    end %k
  end %i
  ret i64 %sum
}}
"""
    words = np.array([7, -2, 11], np.int64)
    total = compiled(text, "total", ctypes.c_void_p)
    for stop in (1, 3, 9, 12):
        table = np.array([len(words), stop, words.ctypes.data], np.int64)
        indices = range(2, max(stop, 3), 3)  # once at least
        assert total(table.ctypes.data) == sum(i * int(w) for i in indices for w in words)


def test_what_stands_inside_is_computed_where_it_stands() -> None:
    text = """
define i64 @replaced(ptr %words, i64 %k) {
  %old = load i64, ptr %words[%k]
  store i64 (add i64 (load i64, ptr %words[(sub i64 %k, 1)]), 5), ptr %words[%k]
  ret i64 (sub i64 (load i64, ptr %words[%k]), %old)
}
"""
    words = np.array([3, 100], np.int64)
    assert compiled(text, "replaced", ctypes.c_void_p, ctypes.c_int64)(words.ctypes.data, 1) == 8 - 100
    assert words.tolist() == [3, 8]
