"""Functions for neural networks, under the names of `jax.nn`; `initializers` makes initial weights.

>>> import numpy as np
>>> from tinyxla import nn
>>> nn.relu(np.array([-1.0, 1.0]))
Array([0., 1.], dtype=float32)
"""

from tinyxla.nn import initializers as initializers
from tinyxla.nn.activations import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    identity as identity,
    leaky_relu as leaky_relu,
    log1mexp as log1mexp,
    log_sigmoid as log_sigmoid,
    mish as mish,
    one_hot as one_hot,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softplus as softplus,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    swish as swish,
    tanh as tanh,
)
from tinyxla.nn.attention import dot_product_attention as dot_product_attention
from tinyxla.nn.normalization import (
    log_softmax as log_softmax,
    logmeanexp as logmeanexp,
    logsumexp as logsumexp,
    softmax as softmax,
    standardize as standardize,
)
from tinyxla.nn.scaled import (
    get_scaled_dot_general_config as get_scaled_dot_general_config,
    scaled_dot_general as scaled_dot_general,
    scaled_matmul as scaled_matmul,
)
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.public_names import listing as _listing

__getattr__ = _missing(__name__)
__dir__ = _listing(globals(), ("initializers",))
