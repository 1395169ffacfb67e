"""Element types, shapes and layouts: what is known of a value before there is one."""

from tinyxla.shapes.element_types import OPAQUE, TOKEN, ElementType, element_type, element_types
from tinyxla.shapes.key_types import KEY_TYPES, KeyType
from tinyxla.shapes.shape import COMBINED, AnyShape, Layout, PaddingValue, Shape, TupleShape
from tinyxla.shapes.window import Window, WindowDimension, window_text

__all__ = [
    "COMBINED",
    "KEY_TYPES",
    "OPAQUE",
    "TOKEN",
    "AnyShape",
    "ElementType",
    "KeyType",
    "Layout",
    "PaddingValue",
    "Shape",
    "TupleShape",
    "Window",
    "WindowDimension",
    "element_type",
    "element_types",
    "window_text",
]
