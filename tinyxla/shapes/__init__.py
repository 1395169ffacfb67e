"""Element types, shapes and layouts: what is known of a value before there is one."""

from tinyxla.shapes.element_types import OPAQUE, TOKEN, ElementType, element_type, element_types
from tinyxla.shapes.shape import AnyShape, Layout, Shape, TupleShape
from tinyxla.shapes.window import Window, WindowDimension, window_text

__all__ = [
    "OPAQUE",
    "TOKEN",
    "AnyShape",
    "ElementType",
    "Layout",
    "Shape",
    "TupleShape",
    "Window",
    "WindowDimension",
    "element_type",
    "element_types",
    "window_text",
]
