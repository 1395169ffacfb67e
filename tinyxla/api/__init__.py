"""The transformations users call: derivatives, batching, and looking at graphs.

All take functions of pytrees of arrays and give such functions, and nest in any order. Compilation is in
`tinyxla.api.jit`.
"""

from tinyxla.api.batching import vmap as vmap
from tinyxla.api.derivatives import (
    elementwise_grad as elementwise_grad,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacrev as jacrev,
    jvp as jvp,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from tinyxla.api.functions import (
    ShapeDtypeStruct as ShapeDtypeStruct,
    eval_shape as eval_shape,
    make_graph as make_graph,
    typeof as typeof,
)
