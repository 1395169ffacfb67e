"""`Lowered.compiler_ir`: the graph as an object with JAX's methods."""

from __future__ import annotations

import tinyxla as tx


def test_compiler_ir_gives_text_and_picture() -> None:
    lowered = tx.jit(lambda x: tx.numpy.tanh(x) * x).lower(2.0)
    graph = lowered.compiler_ir(dialect="hlo")
    assert "ENTRY" in graph.as_hlo_text()
    assert "tanh" in graph.as_hlo_dot_graph()
    assert "digraph" in graph.as_hlo_dot_graph()


def test_compiler_ir_of_equal_programs_has_equal_instructions() -> None:
    def instructions(function: object, x: complex) -> str:
        text = tx.jit(function).lower(x).compiler_ir("hlo").as_hlo_text()
        return text[text.index("{\n", text.index("ENTRY")) :]

    def square(x: object) -> object:
        return x * x

    assert instructions(square, 3.0) == instructions(lambda x: x * x, 3.0)
    assert instructions(square, 3j) != instructions(lambda x: x * x.conj(), 3j)
