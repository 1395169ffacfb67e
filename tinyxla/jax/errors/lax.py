"""What JAX says where functions of `lax` refuse their arguments: a table for `rows`."""

from __future__ import annotations

SHAPE = r"(\w+\[[\d,]*\])"
_PAIR = r"(\(.*?\))"

LAX_TABLE: tuple[tuple[str, str], ...] = (
    (
        rf"lax\.(\w+): the operands have different element types, {SHAPE} and {SHAPE}",
        "lax.{1} requires arguments to have the same dtypes, got {2:dtype}, {3:dtype}. (Tip: jnp.{1} is a similar "
        "function that does automatic type promotion on inputs).",
    ),
    (
        r"lax\.(\w+): the operands have different element types",
        "lax.{1} requires arguments to have the same dtypes",
    ),
    (r"lax\.(\w+): the operands have different ranks", "{1}: arrays must have the same number of dimensions, got"),
    (
        rf"^lax\.(\w+): Incompatible shapes for broadcasting: {_PAIR} and {_PAIR}",
        "{1} got incompatible shapes for broadcasting: {2}, {3}.",
    ),
    (
        rf"([\w-]+): not defined for {SHAPE}; the element type must be of kind (.*?)\.",
        "{1:op} does not accept dtype {2:dtype}{1:place}. Accepted dtypes{1:place} are subtypes of {3:kinds}.",
    ),
    (
        r"lax\.(\w+): not defined for (\w+); convert to a floating type",
        "{1} does not accept dtype {2}. Accepted dtypes are subtypes of floating.",
    ),
    (
        rf"lax\.(\w+) takes floating-point numbers, but got {SHAPE}",
        "{1} does not accept dtype {2:dtype} at position 0. Accepted dtypes at position 0 are subtypes of floating.",
    ),
    (
        rf"compare: direction must be EQ or NE for {SHAPE}, .* but got (\w+)",
        "{2:lower} does not accept dtype {1:dtype} at position 0. Accepted dtypes at position 0 are subtypes of "
        "integer, "
        "floating, bool.",
    ),
    (r"lax\.integer_pow: integers have no power", "Integers cannot be raised to negative powers, got integer_pow"),
    (
        r"lax\.clamp: a limit is a scalar or has the shape",
        "clamp requires min.shape == operand.shape or min.shape == (); clamp requires max.shape == operand.shape or "
        "max.shape == ()",
    ),
    (
        r"the choice among [3-9]\d* cases is an integer, but got pred",
        "select with boolean `which` cannot have > 2 cases.",
    ),
    (
        rf"the choice among \d+ cases is an integer, but got {SHAPE}",
        "select `which` must be boolean or integer type, got {1:dtype}.",
    ),
    (
        rf"the cases have different shapes, {SHAPE} and {SHAPE}",
        "select cases must have the same shapes, got [{1:shape}, {2:shape}].",
    ),
    (
        rf"lax\.select\w*: {SHAPE} chooses among {SHAPE}",
        "select `which` must be scalar or have the same shape as cases, got `which` shape {1:shape} but case shape "
        "{2:shape}.",
    ),
    (r"lax\.select_n takes at least one case", "select_n() must have at least one case"),
    (
        rf"reshape: sizes must make the (\d+) elements of {SHAPE}, but {_PAIR} make (\d+)",
        "cannot reshape array of shape {2:shape} (size {1}) into shape {3} (size {4})",
    ),
    (rf"lax\.reshape: the shape {_PAIR} has a negative size", "reshape new_sizes must all be positive, got {1}."),
    (
        rf"lax\.dynamic_slice: the shape {_PAIR} has a negative size",
        "slice slice_sizes must be greater than or equal to zero, got slice_sizes of {1}",
    ),
    (rf"lax\.split: the shape {_PAIR} has a negative size", "Sizes passed to split must be nonnegative, got"),
    (
        rf"lax\.(?:broadcast|full)\w*: the shape {_PAIR} has a negative size",
        "broadcast_in_dim shape must have every element be nonnegative, got {1}.",
    ),
    (rf"the shape {_PAIR} has a negative size", "iota shape must have every element be nonnegative, got {1}."),
    (
        r"lax\.reshape: transpose: permutation must name",
        "reshape dimensions must be a permutation of operand dimensions",
    ),
    (
        rf"broadcast: dimension \d+ of the sizes {_PAIR} must be",
        "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their corresponding "
        "dimensions in the "
        "target broadcast shape",
    ),
    (
        rf"broadcast_dimensions must be from \d+ to \d+, but got -?\d+ in {_PAIR}",
        "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions, got {1}",
    ),
    (
        rf"broadcast_in_dim: an operand of shape {_PAIR} needs (\d+) dimensions, but got {_PAIR}",
        "broadcast_in_dim broadcast_dimensions must have length equal to operand ndim; got broadcast_dimensions "
        "{3} for "
        "operand ndim {2}.",
    ),
    (
        rf"broadcast_in_dim: the shape {_PAIR} has fewer dimensions than the operand's, {_PAIR}",
        "broadcast_in_dim target broadcast shape must have equal or higher rank to the operand shape; got operand ndim "
        "{2:rank} and target broadcast ndim {1:rank}.",
    ),
    (
        r"broadcast_dimensions must be distinct",
        "broadcast_in_dim broadcast_dimensions must be strictly increasing; got",
    ),
    (rf"lax\.squeeze: the dimensions {_PAIR} name one twice", "dimensions are not unique: {1}"),
    (r"lax\.squeeze: an axis is an integer, but got None", "'NoneType' object cannot be interpreted as an integer"),
    (
        rf"squeeze: dimension (\d+) of {SHAPE} has size",
        "cannot select an axis to squeeze out which has size not equal to one, got shape={2:shape} and "
        "dimensions=({1},)",
    ),
    (
        rf"transpose: permutation must name each dimension of {SHAPE} once, but got {_PAIR}",
        "transpose permutation isn't a permutation of operand dimensions, got permutation {2} for operand shape "
        "{1:shape}.",
    ),
    (rf"reverse: dimensions must be distinct, but got {_PAIR}", "rev dimensions must be unique, got {1}."),
    (
        rf"reverse: dimensions must be from \d+ to \d+, but got -?\d+ in {_PAIR}",
        "rev dimensions must all be less than operand ndim, got dimensions {1}",
    ),
    (
        rf"concatenate: operands must be equal but for dimension (\d+), but got {SHAPE} and {SHAPE}",
        "Cannot concatenate arrays with shapes that differ in dimensions other than the one being concatenated: "
        "concatenating along dimension {1} for shapes {2:shape}, {3:shape}. Cannot concatenate arrays with different "
        "numbers of dimensions: got {2:shape}, {3:shape}.",
    ),
    (r"lax\.concatenate takes at least one array", "concatenate requires a non-empty sequences of arrays"),
    (
        r"pad: interior padding must not be negative",
        "interior padding in padding_config must be nonnegative, got padding",
    ),
    (
        r"pad: padding_config must not take away more than",
        "Dimension size after padding is not at least 0, got result shape",
    ),
    (
        r"pad: padding_config must have \(low, high, interior\)",
        "length of padding_config must equal the number of axes of operand, got padding_config",
    ),
    (rf"pad: the padding value must be a scalar \w+, but got {SHAPE}", "padding_value must be a scalar; got {1:shape}"),
    (
        rf"slice: start_indices and limit_indices must have 0 <= start <= limit <= \d+ in dimension \d+ of {SHAPE}",
        "slice limit_indices must be less than or equal to operand shape, slice_sizes must be less than or equal to "
        "operand shape and limit_indices greater than or equal to start_indices; got operand shape {1:shape}.",
    ),
    (
        rf"dynamic_slice_sizes must fit inside {SHAPE}, but got {_PAIR}",
        "slice slice_sizes must be less than or equal to operand shape, got slice_sizes {2} for operand shape "
        "{1:shape}.",
    ),
    (rf"{SHAPE} takes \d+ start indices, but got", "Length of slice indices must match number of operand dimensions"),
    (
        rf"a start index is an integer scalar, but got {SHAPE}",
        "index arguments to dynamic_slice must be integers of the same type, got: {1:dtype}",
    ),
    (
        rf"dynamic-update-slice: the update must fit inside {SHAPE}, but got {SHAPE}",
        "dynamic_update_slice update shape must be smaller than operand shape, got update shape {2:shape} for operand "
        "shape {1:shape}. dynamic_update_slice update must have the same rank as operand, got update shape "
        "{2:shape} for "
        "operand shape {1:shape}.",
    ),
    (
        rf"dot: contracting dimensions must have equal sizes, but dimension \d+ of {SHAPE} has size (\d+), and "
        rf"dimension "
        rf"\d+ of {SHAPE} has size (\d+)",
        "dot_general requires contracting dimensions to have the same shape, got ({2},) and ({4},).",
    ),
    (
        rf"there must be as many contracting dimensions on either side, but got {_PAIR} and {_PAIR}",
        "dot_general requires contracting dimensions to have the same shape",
    ),
    (
        rf"there must be as many batch dimensions on either side, but got {_PAIR} and {_PAIR}",
        "dot_general requires equal numbers of lhs_batch and rhs_batch dimensions, got lhs_batch {1} and "
        "rhs_batch {2}.",
    ),
    (
        r"dot: batch dimensions must have equal sizes",
        "dot_general requires lhs batch dimensions and rhs batch dimensions to have the same shape",
    ),
    (
        rf"dot: (lhs|rhs) dimensions must be distinct, but got {_PAIR}",
        "dot_general requires {1} batch dimensions to be disjoint from contracting dimensions, got",
    ),
    (
        r"the feature dimension of .* must have feature_group_count = (\d+) times the (\d+) input features .* has "
        r"(\d+)",
        "conv_general_dilated lhs feature dimension size divided by feature_group_count must equal the rhs input "
        "feature "
        "dimension size, but {3} // {1} != {2}.",
    ),
    (
        r"window_strides must have (\d+) entries, one a spatial dimension, but got ([(\[].*?[)\]])",
        "conv_general_dilated window and window_strides must have the same number of dimensions, but got {1} and "
        "{2:rank}",
    ),
    (
        r"padding must be VALID, SAME, SAME_LOWER or pairs of integers, but got '(\w+)'",
        "Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {1}.",
    ),
    (
        rf"lax\.(\w+): .*padding must be .* a \(low, high\) pair for each dimension.* but got {_PAIR}",
        "padding argument to {1} should be a string or a sequence of (low, high) pairs, got {2}",
    ),
    (r"padding must have (\d+) pairs", "Wrong number of explicit pads for convolution: expected {1}, got"),
    (
        r"feature_group_count must divide the output features, but got (\d+) and (\d+)",
        "conv_general_dilated rhs output feature dimension size must be a multiple of feature_group_count, but {2} is "
        "not a multiple of {1}.",
    ),
    (
        r"feature_group_count and batch_group_count must be positive and one of them 1, but got (-?\d+) and (-?\d+)",
        "conv_general_dilated feature_group_count must be a positive integer, got {1}. conv_general_dilated "
        "batch_group_count must be a positive integer, got {2}.",
    ),
    (
        r"convolution: dimension_numbers must be strings of (\d+) letters",
        "convolution dimension_numbers must have len equal to the ndim of lhs and rhs; elements must each have "
        "the same "
        "set of spatial characters",
    ),
    (
        r"reduce-window: window must have a positive size in dimension \d+, but got (-?\d+)",
        "reduce_window window_dimensions must have every element be strictly positive, got ({1},).",
    ),
    (
        r"reduce-window: window must have a positive stride in dimension \d+, but got (-?\d+)",
        "reduce_window window_strides must have every element be strictly positive, got ({1},).",
    ),
    (r"lax\.arg\w+: axis (-?\d+) is out of range for an array with (\d+)", "Invalid axis {1} for operand shape"),
    (r"lax\.arg\w+: index_dtype is an integer type, but got (\w+)", "index_dtype must be an integer type, but got {1}"),
    (
        rf"lax\.arg\w+: dimension (\d+) of {SHAPE} is empty",
        "argmin and argmax require non-empty reduced dimension. operand.shape={2:shape} axis={1}",
    ),
    (
        rf"sort: the operands must have the same dimensions, but got {SHAPE} and {SHAPE}",
        "Arguments to sort must have equal shapes, got: {1:shape} {2:shape}",
    ),
    (
        r"lax\.sort: num_keys must be from 1 to the number of arrays, (\d+), but got (-?\d+)",
        "num_keys={2} must be between 1 and len(operand)={1}",
    ),
    (r"lax\.sort takes at least one array", "Sort requires at least one operand"),
    (
        rf"lax\.top_k: k must be from 0 to the size of axis (\d+) of {SHAPE}, but got -(\d+)",
        "k argument to top_k must be nonnegative, got -{3}",
    ),
    (
        rf"lax\.top_k: k must be from 0 to the size of axis (\d+) of {SHAPE}, but got (\d+)",
        "k argument to top_k must be no larger than size along axis; got k={3} with shape={2:list} and axis={1}",
    ),
    (rf"lax\.top_k: axis \d+ of {SHAPE} has more places than", "top_k returns int32 indices, which will overflow"),
    (
        r"lax\.reshape: a size is an integer, but got (.*)\.",
        "Shapes must be 1D sequences of concrete values of integer type, got {1}.",
    ),
    (
        r"convolution: the operands must have equal ranks of at least 2",
        "conv_general_dilated lhs and rhs must have the same number of dimensions",
    ),
    (
        rf"lax\.reduce_window: .*the initial value for .* must be a scalar \w+, but got {SHAPE}",
        "reduce_window expected init_values to be scalars but init_values have shapes [{1:shape}].",
    ),
    (r"^reduce: the initial value for .* must be a scalar", "reduce found non-scalar initial value"),
    (
        r"lax\.reduce: operands and init_values differ in structure",
        "Operands must have the same tree structure as init_values",
    ),
    (rf"^reduce: dimensions must be distinct, but got {_PAIR}", "duplicate value in 'axes' of reduction: {1}"),
    (
        r"lax\.(reduce_window): the computation gives the structure",
        "{1} output must have the same tree structure as the operands",
    ),
    (
        r"ragged-dot: lhs_ragged_dims must be one dimension",
        "ragged_dot_general expects exactly one lhs ragged dimension",
    ),
    (
        r"^lax\.ragged_dot_general: axis -?\d+ is out of range",
        "ragged_dot_general requires lhs ragged dimension numbers to be nonnegative and less than the number of axes "
        "of the lhs",
    ),
    (
        r"ragged-dot: with a (?:contracting|batch) dimension that is ragged",
        "ragged_dot_general requires zero group dimensions in the rhs when lhs ragged dimension is contracting or "
        "batch",
    ),
    (
        r"ragged-dot: with a free dimension that is ragged, .*, but got \(\)",
        "ragged_dot_general requires exactly one rhs group dimension when lhs ragged dimension is noncontracting",
    ),
    (
        r"ragged-dot: with a free dimension that is ragged",
        "ragged_dot_general requires rhs group dimension numbers to be distinct from contracting and batch dimensions",
    ),
    (r"topk: the element type must have an order", "top_k is not compatible with complex inputs."),
    (
        r"iota: the element type must be a number type",
        "iota does not accept dtype bool. Accepted dtypes are subtypes of",
    ),
    (
        r"lax\.broadcasted_iota: axis (-?\d+) is out of range",
        "iota dimension must be between 0 and len(shape), got dimension={1}",
    ),
    (
        rf"lax\.full: the value is a scalar, but got {SHAPE}",
        "full must be called with scalar fill_value, got fill_value.shape {1:shape}.",
    ),
    (r"'(\w+)' is not an element type of an array", "data type '{1}' not understood"),
    (r"reduce-precision: exponent_bits must be at least 1, but got (-?\d+)", "exponent_bits must be positive; got {1}"),
    (
        r"reduce-precision: mantissa_bits must not be negative, but got (-?\d+)",
        "mantissa_bits must be non-negative; got {1}",
    ),
    (r"lax\.fft: fft_type must be one of .*, but got '(\w+)'", "Unknown FFT type '{1}'"),
    (
        rf"of fft_length {_PAIR} the last dimensions must be .*, but got {SHAPE}",
        "FFT input shape {2:shape} minor dimensions must be equal to fft_lengths {1}",
    ),
    (r"the signal must be real, but got", "only real valued inputs supported for rfft"),
    (
        rf"lax\.linalg\.(\w+): takes square matrices, but got {SHAPE}",
        "The first input to {1} must be a square matrix. Got shape {2:shape}. Argument to {1} must have shape "
        "[..., n, n], got shape {2:shape}.",
    ),
    (
        rf"lax\.linalg\.(\w+): takes matrices, but got {SHAPE}",
        "Input 0 to {1} must have rank at least 2, but got shape={2:shape}",
    ),
    (
        r"lax\.linalg\.householder_product: taus must have the shape",
        "The second argument to householder_product must not have more rows than the minimum of the first argument's "
        "rows and columns.",
    ),
    (
        rf"lax\.reduce_\w+: takes integers and booleans, but got {SHAPE}",
        "logical reduction requires operand dtype bool or int, got {1:dtype}.",
    ),
    (
        r"lax\.split: the sizes .* make (\d+), but dimension (\d+)",
        "Sum of sizes {1} must be equal to dimension {2} of the operand shape",
    ),
    (
        rf"ragged-dot: {SHAPE} must have (\d+) groups in dimension \d+, as .*, but has (\d+)",
        "expected rhs group dimension size to be {2}, got {3}",
    ),
    (
        rf"ragged-dot: the group sizes must be (?:.* or )?{SHAPE}, but got {SHAPE}",
        "expected group_sizes to have shape {1:shape}, got {2:shape}",
    ),
    (r"lax\.round: rounding_method is one of RoundingMethod, but got (\w+)", "{1} is not a valid RoundingMethod"),
)
