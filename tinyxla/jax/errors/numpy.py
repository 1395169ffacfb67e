"""What JAX says where functions of `numpy`, `nn`, `scipy` and `image`, rules and callbacks refuse their arguments: a
table for `rows`."""

from __future__ import annotations

from tinyxla.jax.errors.lax import SHAPE

_PAIR = r"(\(.*?\))"
_ABSTRACT = "Abstract tracer value encountered where concrete value is expected: traced array with shape"
_USE_OTHER_MODE = "Use mode='wrap' or mode='clip' instead."

NUMPY_TABLE: tuple[tuple[str, str], ...] = (
    # rules and callbacks
    (
        r"^custom_vjp of .*: the cotangent must have the structure",
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure as the args tuple "
        "of the "
        "primal function",
    ),
    (
        r"^custom_(jvp|vjp) of (.*): ((?:too many positional|missing|got an unexpected).*)\.",
        "The input arguments to the custom_{1}-decorated function {2} could not be resolved to positional-only "
        "arguments. Binding failed with the error:\n{3}",
    ),
    (
        r"^custom_(jvp|vjp) of (.*): the function must take its arguments by position, since rules do, but \['(\w+)'\]",
        "The input arguments to the custom_{1}-decorated function {2} could not be resolved to positional-only "
        "arguments. Binding failed with the error:\nThe following keyword arguments could not be resolved to "
        "positions: {3}",
    ),
    (r"defjvps takes no nondiff_argnums", "Can't use ``defjvps`` with ``nondiff_argnums``."),
    (
        r"the call of (\w+) of .* does not say how it is mapped; pass vmap_method",
        "vmap is only supported for the {1} primitive when vmap_method is one of 'sequential', 'sequential_unrolled', "
        "'expand_dims', 'broadcast_all', or 'legacy_vectorized'. Got vmap_method=None.",
    ),
    (
        r"result_shape_dtypes has the element type \w+, but without the option enable_x64",
        "result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled",
    ),
    (
        r"vmap_method must be one of .*, but (?:got|is) '?(\w+)'?",
        "vmap_method must be on of the allowed methods; got: {1}",
    ),
    (
        r"^linear_transpose.*callback has no derivative: what io_callback",
        "IO callbacks do not support transpose.",
    ),
    (r"^vmap: io_callback of .* is called with ordered=True", "Cannot `vmap` ordered IO callbacks."),
    (r"callback has no derivative: what pure_callback", "Pure callbacks do not support JVP."),
    (r"callback has no derivative: what io_callback", "IO callbacks do not support JVP."),
    # compiled programs
    (
        rf"A program compiled for \[.*\] was called with \[.*\]: argument (\S+) is {SHAPE}, not {SHAPE}",
        "Argument types differ from the types for which this computation was compiled. The mismatches are:\n"
        "Argument '{1}' compiled with {3:type} and called with {2:type}",
    ),
    (
        r"A program compiled for \[.*\] was called with \[",
        "Argument types differ from the types for which this computation was compiled.",
    ),
    (
        r"A program compiled for arguments of the structure .* was called with",
        "Function compiled with input pytree does not match the input pytree it was called with.",
    ),
    (
        r"donate_argnums has (-?\d+), but it takes (\d+) positional",
        "Jitted function has donate_argnums=({1},), but only accepts {2} positional arguments.",
    ),
    (
        r"the argument .* must not be both static and donated",
        "static_argnums and donate_argnums cannot intersect. static_argnames and donate_argnames cannot intersect.",
    ),
    (r"Unknown backend '(\w+)'; the only one is", "Unknown backend {1}. Available backends are ['cpu']"),
    (
        r"^device_put: the only device is 'cpu', but got (.*)\.",
        "`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, `jax.Device`, `Format`, "
        "`jax.memory.Space` or a "
        "pytree of these values. Received invalid value: {1}",
    ),
    (r"^A mesh must have a name for each of its axes .* but got \(.*None.*\)", "Mesh axis names cannot be None."),
    (
        r"^axis_types must be an AxisType, .* but is (.*)\.",
        "Number of axis names should match the number of axis_types; axis_types must be of type "
        "`jax.sharding.AxisType`. Got axis_types={1}",
    ),
    (
        rf"^(\w+): the part at .* must have the shape {_PAIR}, but has {_PAIR}\.",
        "Expected shard shape {2} doesn't match the single device array shape {3}.",
    ),
    (
        rf"^(\w+): the part of the one device must be all, of shape {_PAIR}, not {_PAIR}\.",
        "Expected shard shape {2} doesn't match the single device array shape {3}.",
    ),
    (
        r"^make_array_from_single_device_arrays: arrays must be a list or tuple of arrays, but is (\w+)",
        "jax.make_array_from_single_device_arrays `arrays` argument must be a list or tuple, but got {1}",
    ),
    (
        r"^make_array_from_single_device_arrays: the parts must be concrete",
        "jax.make_array_from_single_device_arrays requires a list of concrete arrays",
    ),
    (
        r"^make_array_from_single_device_arrays: the parts must have the dtype (\w+) .* but one has (\w+);",
        "If `dtype` is provided to `jax.make_array_from_single_device_arrays`, it must match the dtype of the "
        "addressable shards. Got dtype={1} and shard dtype={2}`.",
    ),
    (
        r"^make_array_from_single_device_arrays: the parts must be on the devices .*, but none is on \[(.*)\], and "
        r"some are on \[(.*)\];",
        "Addressable devices and per-device arrays devices do not match. Sharding contains devices {{{1}}} that are "
        "not present in per-device arrays. Per-device arrays contain devices {{{2}}} that are not present in the "
        "sharding.",
    ),
    (
        r"^make_array_from_single_device_arrays: the parts must be on the devices .*, but are on",
        "When making an array from single-device arrays, the input arrays must be from distinct devices",
    ),
    (
        r"^make_array_from_single_device_arrays: there must be an array for each of the (\d+) devices of this process, "
        r"but got (\d+)",
        "Expected {1} per-device arrays (this is how many devices are addressable by the sharding), but got {2}",
    ),
    (
        r"^make_array_from_callback: cannot be called for traced parts",
        "jax.make_array_from_callback cannot be called within a traced context",
    ),
    (
        r"^make_array_from_single_device_arrays: each part must be on one device, but one has (\d+) parts",
        "When making an array from single-device arrays the input arrays must have one shard each. An argument array "
        "had {1} shard(s).",
    ),
    (
        r"^shard_map: (\w+): (P.*\)) speaks of (\d+) dimensions, but the array has the shape (\(.*?\));",
        "shard_map was given an {1} entry {2} which has length {3}, but the corresponding value has shape {4}, which "
        "has rank {4:rank}. For scalar values (rank 0), consider using an {1} entry of `P()`.",
    ),
    (
        r"^shard_map: a result \S+ with the spec (P.*\)) must be the same on all devices along ('.*'), but may vary",
        "shard_map was given out_specs which require replication which can't be statically inferred given the mesh: "
        "out_specs is {1} which implies that the corresponding output value is only varying across mesh axes {1:axes} "
        "and not {2:axes}, but it was inferred to be possibly varying over {0:axes}.",
    ),
    (
        r"^shard_map: an abstract mesh, .*, has no devices;",
        "Please pass `jax.Array`s with a `NamedSharding` as input to `shard_map` when passing `AbstractMesh` to the "
        "mesh argument.",
    ),
    (
        r"^shard_map: an argument is over a mesh of the axes (.*), but the mesh of the function has (.*)\.",
        "Mesh shape of the input {1} does not match the mesh shape passed to shard_map {2}",
    ),
    (
        r"^Function (.*) was exported for (\d+) devices, but is called with arrays on (\d+);",
        "Function {1} was exported for {2} devices and is called in a context with {3} devices, which is not allowed.",
    ),
    (
        r"^jit: (\w+) must not be given together with the (?:device|backend)",
        "If backend or device is specified on jit, then {1} should not be specified.",
    ),
    (r"^jit: \w+ must say of each dimension how it is split", "Unconstrained dims are not allowed"),
    (
        r"^lax.with_sharding_constraint: there must be a sharding, but got None;",
        "One of with_sharding_constraint arguments got sharding None which is not allowed. Please only pass "
        "`jax.Sharding` instances.",
    ),
    (r"^jit: there must not be both a device", "can't specify both a device and a backend for jit"),
    (
        r"^jit of .*: with in_shardings arguments must be passed by position",
        "pjit does not support kwargs when in_shardings is specified.",
    ),
    (
        r"^jit of .*: (in|out)_shardings: P.* needs a mesh;",
        "jit requires a non-empty mesh in context if you are passing `PartitionSpec`s to {1}_shardings.",
    ),
    (
        r"^device_put: P.* needs a mesh;",
        "Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed to device_put",
    ),
    (
        r"^NamedSharding: (P.*\)) speaks of (\d+) dimensions, but the array has the shape (\(.*?\));",
        "Sharding NamedSharding(spec={1}) is only valid for values of rank at least {2}, but was applied to a value of "
        "rank "
        "{3:rank}. For scalars the PartitionSpec should be P()",
    ),
    (
        r"^\w+: all parts must have one dtype, but the first has (\w+) and one has (\w+);",
        "Input buffers to `Array` must have matching dtypes. Got {2}, expected {1} for buffer",
    ),
    (
        rf"^shard_map: in_specs: the size of dimension (\d+) of {_PAIR} must be a multiple of (\d+),",
        "shard_map was given argument arrays with axis sizes that are not evenly divisible by the corresponding mesh "
        "axis sizes: one of shape {2} has array axis {1}, but {3} does not evenly divide its size",
    ),
    (
        rf"(\w+): the size of dimension (\d+) of {_PAIR} must be a multiple of (\d+), .* have (\[.*\]) parts;",
        "Sharding {1} implies that array axis {2} is partitioned {4} times, but the dimension size is {0:size} "
        "(full shape: {3}, per-dimension tiling factors: {5} should evenly divide the shape)",
    ),
    (
        r"^make_mesh: axis_shapes must be a sequence of integers, but is (.*)\.",
        "`axis_shapes` passed to `make_mesh` should be a sequence of ints, but got {1}",
    ),
    (
        r"^set_mesh: (.*) has manual axes",
        "mesh {1} contains manual axes which is not allowed when using `jax.set_mesh`.",
    ),
    (
        r"^NamedSharding: takes a mesh and a PartitionSpec, but got (.*) and None\.",
        "__init__(): incompatible function arguments.",
    ),
    (
        r"^lax.with_sharding_constraint: an abstract mesh of the axes .*, and the array is on one device;",
        "The sharding on the input must be a `NamedSharding` since the target sharding has an `AbstractMesh` in it. "
        "with_sharding_constraint requires the input passed should be a `jax.Array`.",
    ),
    (
        r"^lax.with_sharding_constraint: an abstract mesh of the axes (.*) has no .*, and the array .* the axes (.*);",
        "Mesh shape of the input {2} does not match the mesh shape of the target sharding {1}",
    ),
    # sharding types
    (
        r"^PartitionSpec: (\w+) is a set of mesh axes, but got (.*)\.$",
        "{1} argument of PartitionSpec should of type `frozenset` or `set`. Got type {2}",
    ),
    (
        r"^PartitionSpec: (\w+) is a set of mesh axes, but has None",
        "{1} cannot contain None. All elements in {1} should refer to the mesh axes.",
    ),
    (
        r"^PartitionSpec: the entries (.*) and (\w+) (\{.*\}) must not",
        "partitions cannot overlap with {2} axes passed to PartitionSpec. Got partitions: {1} and {2} axes: "
        "frozenset({3})",
    ),
    (
        r"^PartitionSpec: unreduced (.*) and reduced (.*) must not",
        "`unreduced` and `reduced` argument to PartitionSpec cannot overlap. Got unreduced: frozenset({1}) and "
        "reduced: frozenset({2})",
    ),
    (
        r"^NamedSharding: (un)?reduced of .* names '(\w+)', but the mesh has the axes",
        "Unreduced axes {2} is not found in mesh.",
    ),
    (
        r"^NamedSharding: (un)?reduced of .* names '(\w+)', but only explicit",
        "Unreduced axes can only refer to mesh axes that is of type `Explicit`. Got unreduced axes: "
        "frozenset({{'{2}'}})",
    ),
    (
        r"^compile: device_assignment must be the devices (.*) of arguments and results",
        "device_assignment passed to `.compile` must match the device_assignment calculated from array shardings and "
        "out_shardings. Got device ids {1}.",
    ),
    (
        r"^(?:\w+\.)*(\w+): out_sharding: (P.*\)) names the axis '(\w+)', which is (\w+) here;",
        "PartitionSpec passed to {1} cannot contain axis names that are of type Auto or Manual. Got PartitionSpec: {2} "
        "with axis name: {3} of type: AxisType.{4}.",
    ),
    (
        r"^\S+: out_sharding: a sharding is over (.*), but the current mesh is (.*); use a sharding of",
        "Context mesh {2} should match the mesh of sharding {1} passed to it.",
    ),
    (
        r"^auto_axes: the axis .* is manual here",
        "Going from `Manual` axis type to `Auto` or `Explicit` axis type is not allowed.",
    ),
    (
        r"(\S+): operands must be over one mesh, but are over (.*) and (.*); reshard",
        "For primitive {1:op}, context mesh {2} should match the aval mesh {3}: Mesh for all inputs should be equal.",
    ),
    (
        r"^A program is over (\d+) devices, as .*, but a sharding in it is over (\d+), as AbstractMesh",
        "was exported for {2} devices and is called in a context with {1} devices, which is not allowed.",
    ),
    (
        r"^vmap of .*: the examples of arguments are split in different ways, along (.*);",
        "Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis specs: {1}",
    ),
    (
        r"^shard_map of .*: in_specs must say how arguments are split along (.*), which no type says",
        "shard_map in_specs argument must be a pytree of `jax.sharding.PartitionSpec` instances, but it was `None`; of "
        "smap: in_axes was not specified when axis_name={1} was of type AxisType.Auto",
    ),
    (
        r"^vmap of .*: spmd_axis_name is (.*), but the examples are split along (.*) by their type",
        "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. Got spmd_axis_name={1} "
        "and arrays sharded on {2}",
    ),
    (
        r"select: dimensions that go together are split in different ways, along .*, of \S+ and (\S+) and (\S+);",
        "select cases must have the same shardings, got [{1}, {2}].",
    ),
    (
        r"dot: dimensions that go together are split in different ways, along .*, of (\S+) and (\S+);",
        "dot_general requires lhs batch dimensions and rhs batch dimensions to have the consistent sharding, got {1} "
        "and {2}.",
    ),
    (
        r"dot: contracted dimensions are split in different ways, along (.*), of",
        "dot_general requires contracting dimensions to have consistent sharding, got {1}.",
    ),
    (r"^([\w-]+): it is not linear, so it does not take partial sums", "unreduced rule for {1:op} is not implemented."),
    (
        r"^lax\.\w+: axis_name must be a name or a tuple of names, but is (.*)\.$",
        "axis_name={1} must be a tuple or a str. Got {1}",
    ),
    (r"^lax.pcast: to='(\w+)' is for a value .* this one is (\w+)", "Unsupported pcast from={2}, to='{1}'"),
    (
        r"^add: operands that are added must all be partial sums",
        "lhs is unreduced while rhs is not. `add` operation does not allow this because there will be implicit "
        "communication.",
    ),
    (
        r"^multiply: it is linear in either operand, so both must not be partial sums",
        "lhs and rhs to `mul` cannot be unreduced since mul is bilinear.",
    ),
    (
        r"^multiply: the factor of partial sums must be reduced along",
        "RHS should be reduced along the same axes LHS is unreduced on.",
    ),
    (
        r"operands that are contracted must not be partial sums",
        "lhs or rhs passed to dot_general cannot be unreduced.",
    ),
    (
        r"^(\w+): operands are partial sums, or reduced, along different axes",
        "lhs and rhs to `{1}` must be unreduced along the same mesh axes. All inputs should be reduced across the same "
        "mesh axes.",
    ),
    (
        r"an operand is whole, where another one is reduced along (.*), of",
        "Inputs cannot be replicated on the same axes that another input is reduced on.",
    ),
    (
        r"an operand is split along .*, where another one is reduced along (.*), of",
        "Inputs cannot be sharded/varying on the same axes that another input is reduced on.",
    ),
    (
        r"where they are contracted: what is contracted is split in different ways there",
        "lhs and rhs contracting dims should be sharded identically when out_sharding provided to dot_general mentions "
        "unreduced_axes.",
    ),
    (
        r"where they are contracted: what is contracted",
        "out_sharding's unreduced axes should be equal to the contracting specs.",
    ),
    (
        r"^shard_map of .*: in_specs has (P.*\)) for an argument of the type (\S+), but both must have the same",
        "in_specs passed to shard_map: {1} does not match the specs of the input for arg: {2}.",
    ),
    (
        r"^shard_map: a result (\S+) with the spec (P.*\)) is (unreduced|reduced) along",
        "out_specs passed to shard_map should be equal to the {3} present on the out_aval. Got out_specs={2}.",
    ),
    (
        r"^shard_map: a result (\S+) is \w+ along '.*', but its spec says (unreduced|reduced)",
        "out_specs passed to shard_map should be equal to the {2} present on the out_aval.",
    ),
    (
        r"dot: both operands are split along .* where they are contracted, so it is ambiguous",
        "Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please specify the "
        "output sharding via the `out_sharding` parameter.",
    ),
    (
        r"dot: two dimensions of the result would be split along the same axis, as (\S+), of (\S+) and (\S+);",
        "dot_general operation with inputs: {2}, {3} produces an illegally sharded result: {1}",
    ),
    (
        r"(\S+): dimensions that go together are split in different ways, along (.*), of",
        "{1:op} got incompatible shardings for broadcasting: {2}.",
    ),
    (
        r"reshape: dimension .*, of (.*); give",
        "This reshape is not supported. Please specify the sharding of the output via the `out_sharding` argument of "
        "jax.lax.reshape. Got operand type: {1}",
    ),
    (
        r"concatenate: operands are split in different ways, (.*); give",
        "All operands should have the same sharding. Got shardings {1}",
    ),
    (r"^lax.scan: dimension 0 of xs must be whole", "0th dimension of all xs should be replicated."),
    (r"lax.split: slice: dimension \d+ of the result has the size", "split on sharded dims"),
    (r"slice: dimension \d+ of the result has the size", "slicing on sharded dims where the sizes do not divide"),
    (r"pad: dimension \d+ of the result has the size", "padding on sharded dims where the sizes do not divide"),
    (
        r"the argument (.*) of type (\S+) is a ShapeDtypeStruct, which has no value",
        "Argument '{1}' of shape {2:type} of type <class 'jax.ShapeDtypeStruct'> is not a valid JAX type.",
    ),
    (r"^ShapedArray: the size of dimension", "The sharding does not evenly divide the dimension size."),
    (
        r"must be sharded over one mesh, but a sharding in it is on the devices (\[.*?\])(?:, as .*?\))? and a "
        r"sharding in it is on the devices (\[.*?\])",
        "Received incompatible devices for jitted computation. Got explicit output sharding with device ids {2} on "
        "platform CPU and sharding_constraint inside jit with device ids {1} on platform CPU",
    ),
    (
        r"the examples of vmap are split along the mesh axis '.*', but the mesh has the axes \(\)",
        "If you are using spmd_axis_name parameter of jax.vmap, please make sure to run your jitted function inside "
        "the mesh context manager. The sharding here is a SingleDeviceSharding.",
    ),
    # layouts and kinds of memory
    (
        r"^device_put: the sharding and layout of (.*) must be concrete",
        "sharding and layout in {1} should be concrete.",
    ),
    (
        r"^(\w+): the sharding and layout of .* must be concrete",
        "`Layout.AUTO` cannot be used in place of a device-local layout in a `{1}`.",
    ),
    (
        r"an argument must have the layout (.*), but has (.*); ",
        "Layout passed to jit does not match the layout on the respective arg. Got jit layout: {1}, arg layout: {2}",
    ),
    (
        r"the layout must have as many dimensions as the array, which has (.*), but is (.*)\.",
        "Length of major_to_minor and the rank of the value should match. Got major_to_minor={2} and value rank={1}",
    ),
    (r"^jit: \w+_shardings: the .*, but got AUTO", "`jax.jit` does not accept device-local layouts directly."),
    (
        r"memory_kind must be one of (.*), but is (.*)\.",
        "Could not find memory addressable by device cpu. Device cpu can address the following memory kinds: {1}. Got "
        "memory kind: {2}",
    ),
    (
        r"an argument of the type (.*) must be in the kind of memory (.*), but is in (.*); use",
        "Memory kinds passed to jax.jit does not match memory kind on the respective arg. Got jit memory kind: {2}, "
        "arg memory kind: {3} for arg type: {1:type}",
    ),
    (
        r"(\S+): the operands must be in one kind of memory, but are in (.*); use",
        "memory_space of all inputs passed to `{1:op}` must be the same. Got {2}",
    ),
    # programs over several meshes
    (
        r"^(.*): the arrays of one program must be sharded over one mesh, but the argument (.*?) of type (\S+) is on "
        r"the devices (\[.*?\])(?:, as .*)? and the argument (.*?) of type (\S+) is on the devices (\[.*?\])",
        "Received incompatible devices for jitted computation. Got argument {2} of {1} with shape {3:type} and device "
        "ids {4} on platform CPU and argument {5} of {1} with shape {6:type} and device ids {7} on platform CPU",
    ),
    (
        r"^(.*): the arrays of one program must be sharded over one mesh, but the argument (.*?) of type (\S+) is on "
        r"the devices (\[.*?\])(?:, as .*)? and a sharding in it is on the devices (\[.*?\])",
        "Received incompatible devices for jitted computation. Got argument {2} of {1} with shape {3:type} and device "
        "ids {4} on platform CPU and sharding_constraint inside jit with device ids {5} on platform CPU",
    ),
    (
        r"he arrays of one program must be sharded over one mesh, but (.*);",
        "Received incompatible devices for jitted computation. Here, {1}",
    ),
    (
        r"^jit of .*: in_shardings: an argument of shape (.*) must have the sharding (.*), but has (.*); use",
        "Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: {2}, arg "
        "sharding: {3} for arg shape: {1}",
    ),
    (
        r"^\S+: an argument of shape (.*) must have the sharding (.*), but has (.*); use",
        "Computation was compiled for input shardings {2} that disagree with the shardings {3} of arguments passed to "
        "it. Here are the mismatches: shape {1}",
    ),
    (
        r"^lax.with_sharding_constraint: the examples of vmap are .* mesh axis (.*), by spmd_axis_name .*, by (P.*);",
        "vmap spmd_axis_name ({1},) cannot appear in with_sharding_constraint spec, but got spec {2}",
    ),
    (
        r"^lax.with_sharding_constraint: P.* needs a mesh;",
        "with_sharding_constraint requires a non-empty mesh in context if you are passing `PartitionSpec`s.",
    ),
    (
        r"^lax.with_sharding_constraint: (P.*\)) speaks of (\d+) dimensions, but the array has the shape (\(.*?\));",
        "One of with_sharding_constraint arguments is incompatible with its sharding annotation {1}: Sharding {1} is "
        "only valid for values of rank at least {2}, but was applied to a value of rank {3:rank}.",
    ),
    (
        r"^jit of .*: in_shardings: (P.*\)) speaks of (\d+) dimensions, but the array has the shape (\(.*?\));",
        "One of pjit arguments is incompatible with its sharding annotation {1}: Sharding {1} is only valid for values "
        "of rank at least {2}, but was applied to a value of rank {3:rank}.",
    ),
    (
        r"^jit of .*: out_shardings: (P.*\)) speaks of (\d+) dimensions, but the array has the shape (\(.*?\));",
        "One of pjit outputs is incompatible with its sharding annotation {1}: Sharding {1} is only valid for values "
        "of rank at least {2}, but was applied to a value of rank {3:rank}.",
    ),
    (
        r"^(?:NamedSharding|jit of .*|pjit)(?:: \w+_shardings)?: (P.*) names '(.*)', but the mesh has the axes (.*)\.",
        "Resource axis: {2} of {1} is not found in mesh: ({3}).",
    ),
    (
        r"^(?:jit of .*|pjit): (\w+_shardings): (P.*) must not name the axis '(.*)' twice;",
        "A single {1} specification can map every mesh axis to at most one positional dimension, but {2} has duplicate "
        "entries for `{3}`",
    ),
    (
        r"^NamedSharding: (P.*) must not name the axis '(.*)' twice;",
        "A single NamedSharding spec specification can map every mesh axis to at most one positional dimension, but "
        "{1} has duplicate entries for `{2}`",
    ),
    # trees
    (r"^flatten_one_level: takes a container, but got .* of type (.*)\.", "can't tree-flatten type: {1}"),
    (r"^tree_reduce: the tree .* has no leaves", "reduce() of empty iterable with no initial value"),
    (r"^tree_transpose: (?:an inner tree has the structure|the tree does not begin as)", "Mismatch"),
    (r"^tree_\w+: the trees have different structures", "pytree structure error: different"),
    (
        r"^The flatten function of (\w+) must return a pair .* but returned (\(.*, .*\))\.(?:\n|$)",
        "The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple{2:iterable}, "
        "got {2}",
    ),
    (
        r"^The flatten function of (\w+) must return a pair .* but returned (.*)\.(?:\n|$)",
        "The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple, got {2}",
    ),
    (
        r"^unravel takes a vector of (\w+), but got (\w+);",
        "unravel function given array of dtype {2}, but expected dtype {1}",
    ),
    (
        r"^register_dataclass: data_fields and meta_fields are given together, or neither, but got (.*) and (.*)\.",
        "register_dataclass: data_fields and meta_fields must both be specified when either is specified. Got {1} {2}.",
    ),
    (
        r"^register_dataclass: (.*) is not a dataclass",
        "register_dataclass: data_fields and meta_fields are required when nodetype is not a dataclass. Got "
        "nodetype={1}.",
    ),
    (
        r"^register_dataclass: \w+ has the fields .*; not named as data, meta or dropped: ({.*?})",
        "data_fields and meta_fields must include all dataclass fields in ``__init__``. Missing fields: {1}.",
    ),
    (
        r"^register_dataclass: \w+ has the fields .*; named but not there: ({.*?})",
        "data_fields and meta_fields must include all dataclass fields in ``__init__``. Unexpected fields: {1}.",
    ),
    # nn and image
    (
        rf"^num_classes of nn.one_hot, .* needs the value of a traced array {SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {1:type}\n"
        "The error arose in jax.nn.one_hot argument `num_classes`.",
    ),
    (
        rf"fan-in and fan-out need axes of inputs and of outputs, but the shape is {_PAIR}",
        "Can't compute input and output sizes of a {1:rank}-dimensional weights tensor with default in_axis. "
        "Must be at "
        "least 2D or specify in_axis explicitly.",
    ),
    (
        r"variance_scaling: (mode|distribution) is .*, but got '(\w+)'",
        "invalid {1} for variance scaling initializer: {2}",
    ),
    (r"initializers\.orthogonal: the shape must have", "orthogonal initializer requires at least a 2D shape"),
    (
        r"initializers\.delta_orthogonal: the shape must be",
        "Delta orthogonal initializer requires a 3D, 4D or 5D shape.",
    ),
    (r"^nn\.glu: axis -?\d+ .* has an odd size", "axis size must be divisible by 2"),
    (
        rf"^image\.resize: shape must have \d+ sizes, as {SHAPE} has, but got {_PAIR}",
        "shape must have length equal to the number of dimensions of x;  {2} vs {1:shape}",
    ),
    (r"^image\.\w+: method must be one of .*, but got '(\w+)'", 'Unknown resize method "{1}"'),
    # linear algebra
    (
        r"norm: the order of a vector norm must be a real number, but got (.*) of type",
        "Invalid order {1} for vector norm.",
    ),
    (r"norm: the order of a matrix norm must be .*, but got (.*?)[.;]", "Invalid order {1} for matrix norm."),
    (r"norm: an array of shape .* is no vector and no matrix", "Improper number of axes for norm:"),
    (r"matrix_power: n is an integer, but got (.*)\.$", "exponent must be an integer, got {1}"),
    (r"matrix_power: takes square matrices", "Last 2 dimensions of the array must be square"),
    (
        r"multi_dot: takes at least two arrays",
        "multi_dot: input arrays must all be two-dimensional, except for the first and last array which may be 1 or 2",
    ),
    (
        rf"tensorsolve: the shapes {_PAIR} and {_PAIR} do not make",
        "After moving axes to end, leading shape of a must match shape of b. got a.shape={1}, b.shape={2}",
    ),
    (
        rf"^linalg\.(\w+): takes square matrices, but got {SHAPE}",
        "Argument to {1} must have shape [..., n, n], got {2:shape}. Argument to {1}() must have shape [..., n, "
        "n], got "
        "{2:shape}. The input to {1} must be a square matrix. Got shape {2:shape}",
    ),
    (r"linalg\.qr: mode must be one of .*, but got '(\w+)'", "Unsupported QR decomposition mode '{1}'"),
    (
        rf"^linalg\.(\w+): takes matrices, but got {SHAPE}",
        "Input 0 to {1} must have rank at least 2, but got shape={2:shape}",
    ),
    (
        rf"linalg\.lstsq: takes a matrix and as many numbers or rows, but got {SHAPE}",
        "{1:ndim}-dimensional array given. Array must be two-dimensional",
    ),
    (
        r"assume_a must be one of (.*), but got '(\w+)'",
        "Expected assume_a to be one of [{1}]; got '{2}'",
    ),
    (
        rf"block_diag: takes numbers, vectors and matrices, but got {SHAPE}",
        "block_diag must have at most 2 dimensions, got",
    ),
    (r"polar: side must be one of", "The argument `side` must be either 'right' or 'left'."),
    (r"dft: scale must be one of .*, but got '(\w+)'", "scale must be None, 'sqrtn', or 'n'; got '{1}'."),
    (r"pascal: kind must be one of (.*), but got '(\w+)'", "Expected kind to be on of: [{1}]; got {2}"),
    (r"hadamard: n must be a positive power of 2, but got (.*)\.", "n must be a positive power of 2; got {1}."),
    # element-wise functions, and those that move elements
    (
        r"^numpy\.clip: Clip received a complex value",
        "Clip received a complex value either through the input or the min/max keywords. Complex values have no "
        "ordering and cannot be clipped. Please convert to a real value or array by taking the real or imaginary "
        "components via jax.numpy.real/imag respectively.",
    ),
    (
        r"^hypot: takes real numbers, but got an array of",
        "jnp.hypot is not well defined for complex-valued inputs. Please convert to real values first, such as by "
        "using abs(x)",
    ),
    (
        r"^pad: mode '(\w+)' takes .*, but got ([\w, ]+)\.",
        "unsupported keyword arguments for mode '{1}': {{'{2}'}}",
    ),
    (r"^pad: mode must be one of .*, but got (.*?)\.(?:\n|$)", "Unimplemented padding mode '{1}' for np.pad."),
    (
        r"diagonal: takes two different axes, but got (-?\d+) and (-?\d+)",
        "axis1 and axis2 can not be same. axis1={1} and axis2={2}",
    ),
    (
        r"^(corrcoef|cov): dtype must be floating-point or complex, but got (\w+)",
        "{1}: dtype must be a subclass of float or complex; got dtype={2:name}",
    ),
    (
        rf"^broadcast_to: an array of shape {_PAIR} does not broadcast to {_PAIR}",
        "Incompatible shapes for broadcasting: {1} and requested shape {2}. Cannot broadcast to shape with fewer "
        "dimensions: arr_shape={1} shape={2}",
    ),
    (
        r"^ravel_multi_index: mode must be one of .*, but got ('.*?')\.",
        "invalid mode={1}. Expected 'raise', 'wrap', 'clip', or 'ignore'.",
    ),
    (
        r"(?:is|got) a masked array, whose mask would be lost",
        "numpy masked arrays are not supported as direct inputs to JAX functions. Use arr.filled() to convert the "
        "value to a standard numpy array.",
    ),
    (
        r"^numpy\.(\w+): (\[.*\]) is not an element type of an array",
        "JAX only supports number, bool, and string dtypes, got dtype {2} in {1}",
    ),
    (
        r"^(?:numpy\.)?(\w+): (\d+) is not an element type; .*\(\((.*)\)\)",
        "Cannot interpret '{2}' as a data type.\n\nDid you accidentally write `jax.numpy.{1}({3})` when you meant "
        "`jax.numpy.{1}(({3}))`?",
    ),
    (
        rf"^(?:numpy\.)?choose with mode='raise' needs the value of a traced array {SHAPE}",
        f"{_ABSTRACT} {{1:type}}\nThe error occurred because jnp.choose was jit-compiled with mode='raise'. "
        f"{_USE_OTHER_MODE}",
    ),
    (
        rf"^(?:numpy\.)?ravel_multi_index with mode='raise' needs the value of a traced array {SHAPE}",
        f"{_ABSTRACT} {{1:type}}\nThe error occurred because ravel_multi_index was jit-compiled with mode='raise'. "
        f"{_USE_OTHER_MODE}",
    ),
    (
        r"^[rc]_: '(.*)' is no directive",
        "could not understand directive '{1}'",
    ),
    # scipy and Fourier transforms
    (
        r"^fft\.(\w+): there must be two axes, but got (.*?);",
        "jax.numpy.fft.{1} only supports 2 axes. Got axes = {2}.",
    ),
    (
        r"^fft\.(\w+): an axis is an integer, but got (.*?)\.(?:\n|$)",
        "jax.numpy.fft.{1} does not support multiple axes. Please use jax.numpy.fft.{1}n. Got axis = {2}.",
    ),
    (
        r"^fft\.(\w+): the axes (.*?) name a dimension twice",
        "jax.numpy.fft.{1} does not support repeated axes. Got axes {2}.",
    ),
    (
        r"^fft\.(\w+): n is an integer, but got (.*?)\.(?:\n|$)",
        "The n argument of jax.numpy.fft.{1} only takes an int. Got n = {2}.",
    ),
    (
        r"^fft\.(\w+): d is a number, but got (.*?)\.(?:\n|$)",
        "The d argument of jax.numpy.fft.{1} only takes a single value. Got d = {2}.",
    ),
    (r"signal\.\w+: takes two arrays of one rank", "in1 and in2 must have the same number of dimensions"),
    (
        r"signal\.\w+: in the mode 'valid' one array must be",
        "For 'valid' mode, One input must be as large as the other in every dimension.",
    ),
    (r"signal\.\w+: mode must be one of (.*), but got", "mode must be one of [{1}]"),
    (r"stats\.mode: nan_policy must be one of .*, but got '(\w+)'", "Illegal nan_policy value '{1}'; expected one of"),
    (r"stats\.rankdata: method must be one of .*, but got '(\w+)'", "unknown method '{1}'"),
    (r"gaussian_kde: dataset should have multiple elements", "`dataset` input should have multiple elements."),
    (r"cumulative_\w+: an array of 0 dimensions needs `axis`", "The input must be non-scalar to take a cumulative sum"),
    (
        r"cumulative_\w+: an array of (\d+) dimensions needs `axis`",
        "The input array has rank {1}, however axis was not set to an explicit value. The axis argument is only "
        "optional for one-dimensional arrays.",
    ),
    (
        r"^(?:numpy\.)?(\w+): (?:\w+: )?`where` must be of booleans, but its element type is (\w+)",
        "jnp.{1}: where must be None or a boolean array. Got where.dtype={2}.",
    ),
    (
        r"`initial` must be a number, but has the shape (\(.*?\))\.",
        "initial value must be a scalar. Got array of shape {1}",
    ),
    (r"^cov: dtype must be", "cov: dtype must be a subclass of float or complex"),
)
