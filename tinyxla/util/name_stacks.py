"""Name stacks: the `named_scope`s around an operation and the transformations that recorded it, joined by "/".

A name that ends in "(" is a transformation: it goes around the name behind it where the stack is shown, so that
`vmap(/layer` is `vmap(layer)`; an empty name ends it, too. As it is kept, the stack inside of another is behind that.
"""

from __future__ import annotations

JVP, TRANSPOSE, VMAP = "jvp(", "transpose(", "vmap("


def extended(outer: str, inner: str) -> str:
    """The stack of what is inside of another one.

    >>> from tinyxla.util.name_stacks import extended
    >>> extended("layer", "jvp("), extended("", "layer"), extended("layer", "")
    ('layer/jvp(', 'layer', 'layer')
    """
    return f"{outer}/{inner}" if outer and inner else outer or inner


def shown(stack: str) -> str:
    """The stack as text, with transformations around the names that they end before.

    >>> from tinyxla.util.name_stacks import shown
    >>> shown("outer/transpose(/jvp(/layer/inner"), shown("vmap("), shown("vmap(//sine")
    ('outer/transpose(jvp(layer))/inner', 'vmap()', 'vmap()/sine')
    """
    if "(" not in stack and "//" not in stack:
        return stack
    names: list[str] = []
    around: list[str] = []
    for name in stack.split("/"):
        if name.endswith("("):
            around.append(name)
        elif name or around:
            names.append("".join(around) + name + ")" * len(around))
            around.clear()
    if around:
        names.append("".join(around) + ")" * len(around))
    return "/".join(names)
