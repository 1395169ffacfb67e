"""What JAX says where this library has an error of its own words: programs and tests look for it in messages.

Each row has a pattern of this library's text and the start of JAX's, in which `{1}` is a group of the pattern;
`{1:type}` is a group like `f32[3]` as JAX writes it, `float32[3]`; `{1:shape}` its shape and `{1:dtype}` its element
type; `_NOTATIONS` has others. The first row that fits counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from tinyxla.jax.errors.differences import difference_words
from tinyxla.jax.errors.lax import LAX_TABLE, SHAPE as _SHAPE
from tinyxla.jax.errors.numpy import NUMPY_TABLE
from tinyxla.jax.jaxprs.primitives.catalogue import BINARY, BITWISE, UNARY
from tinyxla.shapes import element_type

_NOT_AVAILABLE = "See https://docs.jax.dev/en/latest/errors.html#jax.errors."

_TYPE = r"(\w+\[[^]]*\])"  # of sizes that may be symbolic
_MISFIT = r"argument (\S+) of the shape (\(.*?\)): dimension (\d+) is (.*), which does not fit (.*?)"
_POLYMORPHIC = "Input shapes do not match the polymorphic shapes specification. "
_SPECIFICATIONS = (
    "Using the following polymorphic shapes specifications: {1:path}.shape = {2}. Obtained dimension variables: "
)

_TABLE: tuple[tuple[str, str], ...] = (
    # sparse arrays
    (r"^sparsify: ([\w-]+) has no form for sparse arrays", "sparse rule for {1:op} is not implemented."),
    (
        r"^sparsify: a function whose value at zero is",
        "sparse rule is not implemented because it would result in dense output.",
    ),
    # foreign functions and lowering rules
    (
        r"^register_lowering of (.*): the platform is one of (.*), but is (.*)\.",
        "Registering an MLIR lowering rule for primitive {1} for an unknown platform {3}. Known platforms are: {2}.",
    ),
    (r"^custom-call: the target '(.*)' has no (?:jvp|vjp) rule", "The FFI call to `{1}` cannot be differentiated."),
    (
        r"^ffi_call of .*: input_output_aliases has (\d+): (\d+), but the arguments are (\d+)",
        "input_output_aliases contains the mapping '{1}:{2}' with input index {1} outside the range [0, {3}).",
    ),
    (
        r"^ffi_call of .*: input_output_aliases has (\d+): (\d+), but the results are (\d+)",
        "input_output_aliases contains the mapping '{1}:{2}' with output index {2} outside the range [0, {3}).",
    ),
    (
        rf"^ffi_call of .*: input_output_aliases has (\d+): (\d+), but argument .* is {_TYPE} and result .* is {_TYPE}",
        "input_output_aliases contains the mapping '{1}:{2}' referring to an input with abstract value {3:type} and an "
        "output with a different abstract value {4:type}.",
    ),
    (
        r"^ffi_call of .*: legacy_backend_config is for .* custom_call_api_version is (\d+)",
        "The use of the legacy_backend_config parameter requires custom_call_api_version < 4; got {1}.",
    ),
    (
        r"^ffi_call of .*: attributes are for typed handlers, and custom_call_api_version is (\d+)",
        "The use of ffi_call attributes requires a custom call API version of at least 4; got api_version={1}.",
    ),
    (
        r"^ffi_call of .*: result (\d+) must have a shape and a dtype, but is (.*)\.",
        "All elements of result_shape_dtypes must have 'shape' and 'dtype' attributes. Got {2} at position {1}.",
    ),
    (
        r"^ffi_call of .*: input_layouts has (\d+) entries, but the arguments are (\d+)",
        "The number of input arguments ({2}) must equal the number of input layouts ({1}).",
    ),
    (
        r"^ffi_call of .*: output_layouts has (\d+) entries, but the results are (\d+)",
        "The number of outputs ({2}) must equal the number of output layouts ({1}).",
    ),
    (
        r"^colocated_python: \S+ has no arguments, whose devices",
        "No devices found. colocated_python function without input arguments must be first specialized with devices.",
    ),
    (r"^\S+(?: of \S+)?: a part of a Ref, such as ref.at\[index\], is no argument", "TransformedRefs are not allowed"),
    # donated arguments
    (
        r"^\S+: an array (\S+) is donated twice,",
        "INVALID_ARGUMENT: Attempt to donate the same buffer twice in Execute()",
    ),
    (
        r"^\S+: an array \S+ is donated and used besides",
        "INVALID_ARGUMENT: Attempt to use a buffer that was previously donated in the same call to Execute()",
    ),
    # exported functions
    (
        r"^export takes a compiled function, but got (.*); export\(jit\(f\)\)",
        "Function to be exported must be the result of `jit` but is: {1}",
    ),
    (
        r"^export: the option 'export_calling_convention_version' must be .*, but is (-?\d+)",
        "The requested export calling convention version {1} is outside the range of supported versions",
    ),
    (
        r"^(\S+) was exported for arguments of the structure",
        "The invocation args and kwargs must have the same pytree structure as when the function '{1}' was exported",
    ),
    (
        rf"^\S+: argument (\S+) must be {_TYPE}, but is {_TYPE}",
        "{0:mismatch}",
    ),
    (
        rf"{_MISFIT}: (\w+) = .* leaves a remainder of (.*?), which must be 0",
        f"{_POLYMORPHIC}Division had remainder {{7}} when computing the value of '{{6}}'. {_SPECIFICATIONS}",
    ),
    (
        rf"{_MISFIT}: (\w+) = .* is (.*?), which must be positive",
        f"{_POLYMORPHIC}Expected value >= 1 for dimension variable '{{6}}'. {_SPECIFICATIONS}"
        "'{6}' = {7} from specification '{5}' for dimension {1:path}.shape[{3}] (= {4})",
    ),
    (
        rf"{_MISFIT}: it must be (.*?), since",
        f"{_POLYMORPHIC}Found inconsistency between dimension size {{1:path}}.shape[{{3}}] (= {{4}}) and the "
        f"specification '{{5}}' (= {{6}}). {_SPECIFICATIONS}",
    ),
    (
        r": the variable '(\w+)' does not follow from the sizes of the arguments",
        "Cannot solve for values of dimension variables {{'{1}'}}. We can only solve linear uni-variate constraints.",
    ),
    (
        r"^export of (.*): the symbolic dimensions .* are of different scopes: (.*) of argument (\S+) is of another "
        r"scope than .* of argument (\S+);",
        "Invalid mixing of symbolic scopes when exporting {1}. Expected current (from {4:path}) scope and found for "
        "'{2}' ({3:path}) scope of its own.",
    ),
    (
        r"^(\S+) was exported for the platforms (.*), but runs on a CPU",
        "Function '{1}' was exported for platforms '({2})' but it is used on '('cpu',)'.",
    ),
    (
        r"^A container (\w+) among the arguments or results of an exported function cannot be written",
        "Cannot serialize PyTreeDef containing an unregistered type `{1}`.",
    ),
    (
        r"^register_pytree_node_serialization: (\w+) or the name (.*) is registered already",
        "Duplicate serialization registration for type `{1}` or serialized_name {2}.",
    ),
    (
        r"^register_namedtuple_serialization: .* is no named tuple",
        "Use `jax.export.register_pytree_node_serialization` for types other than `collections.namedtuple`.",
    ),
    # prefixes of trees
    (
        r"^jit of .*: (\w+): the shardings have .*: at its root it is a (list|tuple) of length \d+, and theirs is a \2",
        "pytree structure error: different lengths of {2} at key path\n    pjit {1}\n",
    ),
    (
        r"^(jit|shard_map) of .*: (\w+) .*: at (\[.*\]) it is a (list|tuple) of length \d+, and theirs is a \4",
        "pytree structure error: different lengths of {4} at key path\n    {1} {2}{3}\n",
    ),
    # transfer guards
    (
        r"is copied from the host to a device, which transfer_guard",
        "INVALID_ARGUMENT: Disallowed host-to-device transfer:",
    ),
    (r"is copied to .*, which transfer_guard_dev", "INVALID_ARGUMENT: Disallowed device-to-device transfer:"),
    # effects
    (r"is called for its effect in a branch that not all", "IO effect not supported in vmap-of-cond."),
    (r"is called for its effect in a loop whose examples end", "IO effect not supported in vmap-of-while."),
    # derivatives
    (
        rf"^(jacrev|jacfwd) of .*: the result is {_SHAPE}, of element type \w+; if the function is complex",
        "{1} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got {2:dtype}.",
    ),
    (
        rf"^(\w+) of .*: argument .* is {_SHAPE}, of element type \w+, but with holomorphic=True it must be complex",
        "{1} with holomorphic=True requires inputs with complex dtype, but got {2:dtype}.",
    ),
    (
        rf"^(jacfwd) of .*: argument .* is {_SHAPE}, of element type \w+; if the function is complex",
        "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got {2:dtype}.",
    ),
    (
        r"^With has_aux=True .* must return a pair \(result, auxiliary\)",
        "expected function with aux output to return a two-element tuple",
    ),
    (
        r"^custom_jvp of (.*): the tangent of the rule (.*) must have the structure (.*), where .*, but has the "
        r"structure (.*)\.",
        "Custom JVP rule {2} for function {1} must produce primal and tangent outputs with equal container (pytree) "
        "structures, but got PyTreeDef({3}) and PyTreeDef({4}) respectively.",
    ),
    (
        r"^custom_jvp of (.*): the rule (.*) must give the function's result first, of the structure (.*), but gives "
        r"(.*)\.",
        "Custom JVP rule {2} for function {1} must produce a pair (list or tuple of length two) where the first "
        "element represents the primal output (equal in value to the output of the custom_jvp-decorated function {1}, "
        "and in particular of the same container/pytree structure), but instead the JVP rule output's first element "
        "had container/pytree structure:\n    {4:types}\nwhile the custom_jvp-decorated function {1} had output "
        "container/pytree structure:\n    {3:types}.",
    ),
    (
        r"^custom_jvp of (.*): the rule (.*) must give the function's result first, of the shapes and types (.*), but "
        r"gives (.*)\.",
        "Custom JVP rule {2} for function {1} must produce a pair (list or tuple of length two) where the first "
        "element represents the primal output (equal in value to the output of the custom_jvp-decorated function {1}, "
        "and in particular with leaves of the same shape/dtype), but instead the JVP rule output's first element had "
        "shapes/dtypes of:\n    {4:types}\nwhile the custom_jvp-decorated function {1} had output shapes/dtypes of:\n"
        "    {3:types}",
    ),
    (
        r"^custom_vjp of (.*): the forward rule (.*) must give the function's result first, of the (structure|shapes "
        r"and types) (.*), but gives (.*)\.",
        "Custom VJP fwd rule {2} for function {1} must produce a pair (list or tuple of length two) where the first "
        "element represents the primal output (equal to the output of the custom_vjp-decorated function {1}) and the "
        "second element represents residuals (i.e. values stored from the forward pass for use on the backward pass), "
        "but instead the fwd rule output's first element had {3:jax}:\n    {5:types}\nwhile the custom_vjp-decorated "
        "function {1} had output {3:jax}:\n    {4:types}",
    ),
    (
        rf"^(jacfwd) of .*: argument .* is {_SHAPE}, of element type \w+, for which there is no derivative",
        "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got {2:dtype}.",
    ),
    (
        rf"^(\w+) of .*: argument .* is {_SHAPE}, of element type \w+, for which there is no derivative",
        "{1} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got "
        "{2:dtype}. If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to True.",
    ),
    (
        rf"^(\w+) of .* must return one floating-point number, but returned {_SHAPE}, of element type",
        "{1} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got {2:dtype}.",
    ),
    (
        rf"must return one floating-point number, but returned {_SHAPE}",
        "Gradient only defined for scalar-output functions. Output had shape: {1:shape}.",
    ),
    (
        "must return one floating-point number, but returned",
        "Gradient only defined for scalar-output functions. Output was",
    ),
    (
        r"argnums names argument (\d+), but the call has (\d+) positional",
        "differentiating with respect to argnums={1} requires at least {1:next} positional arguments to be "
        "passed by the "
        "caller, but got only {2} positional arguments.",
    ),
    (
        r"^jvp of .*: (?:primals|tangents) must be a tuple .*\(primals is a (\w+), and tangents a (\w+)\)",
        "primal and tangent arguments to jax.jvp must be tuples or lists; found {1} and {2}.",
    ),
    (
        r"^jvp of .*: primals and tangents must be both tuples or both lists, but .* structures (.*) and (.*) where",
        "primal and tangent arguments to jax.jvp must have the same tree structure; primals have tree structure "
        "PyTreeDef({1}) whereas tangents have tree structure PyTreeDef({2}).",
    ),
    (
        "^The tangent.* must have the type of the argument",
        "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of int/bool primal "
        "dtype the tangent dtype must be float0.",
    ),
    (
        rf"^The tangent at .* must have the shape of the argument of .*, {_SHAPE}, but has the shape {_SHAPE}",
        "jvp called with different primal and tangent shapes;Got primal shape {1:shape} and tangent shape as {2:shape}",
    ),
    (
        r"^The tangent must have the structure of the argument of .*, which is (.*) where .* has the structure (.*)\.",
        "primal and tangent arguments to jax.jvp must have the same tree structure; primals have tree structure "
        "PyTreeDef({1}) whereas tangents have tree structure PyTreeDef({2}).",
    ),
    (
        rf"^The cotangent.* must have the (?:shape|type) of the result of .*, {_SHAPE}, but (?:has the shape|is) "
        rf"{_SHAPE}",
        "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got {2:type}, but expected "
        "{1:type} because "
        "the corresponding output of the differentiated function had JAX type {1:type}",
    ),
    ("^The cotangent must have the structure of the result", "unexpected tree structure"),
    (
        rf"^vjp of .*: the cotangent {_SHAPE} varies along",
        "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got {1:type}, which varies along manual "
        "axes",
    ),
    (
        rf"^the derivative of .*: a tangent {_SHAPE} varies along (.*), but belongs",
        "linearized function called on tangent values inconsistent with the original primal values: Got tangent aval "
        "{1:type}. This might be fixed by applying `jax.lax.pcast(..., ({2},), to='varying')` to the primal value "
        "passed to `jax.linearize`",
    ),
    (
        rf"^the derivative of .*: a tangent must have the (?:shape|type) .*, but is {_SHAPE}",
        "linearized function called on tangent values inconsistent with the original primal values: got {1:type}",
    ),
    (
        r"^vjp of (.*): the pullback takes one argument, .* but got (\d+);",
        "The function returned by `jax.vjp` applied to {1} was called with {2} arguments, but functions returned by "
        "`jax.vjp` must be called with a single argument corresponding to the single value returned by {1} (even if "
        "that returned value is a tuple or other container).",
    ),
    (
        rf"^linear_transpose of .*: arguments must be floating or complex, but one is {_SHAPE}",
        "linear_transpose only supports [float or complex -> float or complex], and integer -> integer, functions, but "
        "got {1:dtype}.",
    ),
    ("^linear_transpose of .*: the cotangent must have the structure", "cotangent tree does not match function output"),
    (
        "^linear_transpose of .*: the cotangent must have the (?:shape|type)",
        "cotangent type does not match function output",
    ),
    (
        "^linear_call of .*: fun_transpose must give the structure of linear_args, (.*), but gives (.*)\\.",
        "transpose output pytree structure must match that of linear inputs, got output structure PyTreeDef({2}) and "
        "input structure PyTreeDef({1}).",
    ),
    (
        "^The converted function takes arguments of the structure",
        "The inputs to the closure produced by closure_convert must have the same Pytree structure as the example "
        "arguments passed when closure_convert was called.",
    ),
    (r"^custom_jvp of (.*) has no rule", "No JVP defined for custom_jvp function {1} using defjvp."),
    (
        r": a custom_vjp function has no derivative in forward mode",
        "can't apply forward-mode autodiff (jvp) to a custom_vjp function.",
    ),
    (
        r"^.*: the function uses an outer value that a derivative is wanted for",
        "Detected differentiation of a custom_jvp or custom_vjp function with respect to a closed-over value. That's "
        "not supported because the custom rule only specifies how to differentiate the function with respect to "
        "explicit input parameters. Try passing the closed-over value into the function as an argument, and adapting "
        "the rule.",
    ),
    (r"^custom_vjp of (.*) has no rule", "No VJP defined for custom_vjp function {1} using defvjp."),
    (r"^custom_vmap of (.*) has no rule", "No batching rule defined for custom_vmap function {1} using def_vmap."),
    (
        rf"^custom_vjp of .*: the cotangent(.*) must have the shape of what it belongs to, {_SHAPE}, but is a "
        r"SymbolicZero\((\w+\[[\d,]*\])\)",
        "Custom VJP bwd rule produced a SymbolicZero with a shape/dtype that does not match the corresponding input "
        "tangent shape/dtype: at output{1} the SymbolicZero had shape/dtype {3:type} while the corresponding input had "
        "shape/dtype {2:type}. Consider just returning a None here instead of a SymbolicZero object.",
    ),
    (
        rf"^custom_vjp of .*: the cotangent(.*) must have the (shape|type) of what it belongs to, {_SHAPE}, but is "
        rf"{_SHAPE}",
        "Custom VJP bwd rule must produce an output with the same type as the args tuple of the primal function, but "
        "at output{1} the bwd rule produced an output of type {4:type} corresponding to an input of type {3:type}, so "
        "the {2}s do not match",
    ),
    (
        rf"backward rule(?: in .*)? gives a cotangent {_SHAPE} that varies along (.*) for an argument that does not;",
        "Custom VJP bwd rule must produce an output with the same type as the args tuple of the primal function, but "
        "the bwd rule produced an output of type {1:type} that varies along {2}, so the manual axis types do not match",
    ),
    (
        r"^lax.pshuffle: perm must have each number from .* once, but is (.*); for others",
        "`perm` does not represent a permutation: {1}",
    ),
    (
        r"^custom_vmap of .*: what the rule (.*) says is batched is (.*), which does not fit (.*), where",
        "structure of output value and output batching specification returned by custom vmap rule ({1}) do not match: "
        "{3} and {2}",
    ),
    (
        r"^custom_vmap of .*: the rule (.*) must give what has the structure of the function's result, (.*), but gives "
        r"(.*)\.",
        "structure of output returned by custom vmap rule ({1}) does not match that of original custom-vmapped "
        "function: {3} and {2}",
    ),
    (
        r"^(custom_\w+) of (.*): (missing a required argument: .*)\.",
        "The input arguments to the {1}-decorated function {2} could not be resolved to positional-only arguments. "
        "Binding failed with the error:\n{3}",
    ),
    (
        r"^(custom_\w+) of (.*): the function must take its arguments by position, since rules do, but \[(.*)\] can",
        "The input arguments to the {1}-decorated function {2} could not be resolved to positional-only arguments. "
        "Binding failed with the error:\nThe following keyword arguments could not be resolved to positions: {3:bare}",
    ),
    (
        r"^custom_jvp of (.*): the rule (.*) must give a pair \(result, tangent\), but gives (?:Array\()?(.*?)"
        r"[,.](?= |$)",
        "Custom JVP rule {2} for function {1} must produce a pair (list or tuple of length two) representing primal "
        "and tangent outputs, but got {3}",
    ),
    (
        rf"^custom_jvp of .*: the tangent .* must have the shape of what it belongs to, {_SHAPE}, but is {_SHAPE}",
        "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. Expected "
        "{1:type} "
        "(tangent type of {1:type}) but got {2:type}.",
    ),
    (
        r"^custom_vjp of (.*): the forward rule (.*) must give a pair",
        "Custom VJP fwd rule {2} for function {1} must produce a pair (list or tuple of length two)",
    ),
    (
        r"^custom_vjp of .*: the backward rule (.*) must give a tuple",
        "Custom VJP bwd rule {1} must produce an output with the same container (pytree) structure as the args tuple "
        "of the primal function, and in particular must produce a tuple of length equal to the number of arguments to "
        "the primal function",
    ),
    # compiled functions
    (r"^(\w+) takes a function, but got (.*) of type", "Expected a callable value, got {2}"),
    (
        r"^The result of (.*) is .* of type (\w+), which is not an array or a number",
        "function {1} traced for jit returned a value of type <class '{2}'>, which is not a valid JAX type",
    ),
    (
        r"^jit of (.*): argument (\S+) is .* of type (\w+), which is not an array or a number",
        "Error interpreting argument to {1} as an abstract array. The problematic value is of type <class '{3}'> and "
        "was passed to the function at path {2}.",
    ),
    (
        r"^\w+ of .*: argument .* is (.*) of type (\w+), which is not an array or a number",
        "Argument {1} of type <class '{2}'> is not a valid JAX type",
    ),
    (
        r"^\w+ of .*: argument .* has the element type (\w+), which arrays cannot have",
        "Argument of dtype {1} is not a valid JAX type",
    ),
    (
        r"^(?:device_put|\w+): .* is (.*) of type (\w+), which is not an array or a number",
        "Argument {1} of type <class '{2}'> is not a valid JAX type",
    ),
    (r"^jit of .*: it takes a function, but got a static method", "staticmethod arguments are not supported, got"),
    (r"^jit of .*: the static arguments .* cannot be compared", "static arguments should be comparable using __eq__."),
    (
        r"^(\S+): abstract_eval must return",
        "{1}.abstract_eval() method should return a tuple or a list iff {1}.multiple_results.",
    ),
    (
        r"the static argument .*? is (.*) of type \w+, which cannot be hashed \((unhashable type: '([\w.]+)')\)",
        "Non-hashable static arguments are not supported. An error occurred while trying to hash an object of type "
        "<class '{3}'>, {1:str}. The error was:\nTypeError: {2}",
    ),
    (r"the static argument .* cannot be hashed", "Non-hashable static arguments are not supported."),
    (
        r"static_argnums has (-?\d+), but it takes (\d+) positional",
        "Jitted function has static_argnums=({1},), but only accepts {2} positional arguments.",
    ),
    (
        r"static_argnames has '(\w+)', but there is no such parameter",
        "Jitted function has invalid argnames {{'{1}'}} in static_argnames. Function does not take these args.",
    ),
    (
        "^jit of (.*): it is traced for a call, but the option no_tracing",
        "re-tracing function {1} for `jit`, but 'no_tracing' is set",
    ),
    (
        "^jit of (.*): it runs, but the option no_execution",
        "An execution of {1} was attempted, but 'no_execution' is set",
    ),
    (
        r"^A compiled program needs the value of a traced array .* inside a batched function",
        "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. Detected "
        "argument of Tracer type <class 'jax._src.interpreters.batching.BatchTracer'>.",
    ),
    (
        r"^A compiled program needs the value of a traced array",
        "Cannot apply JAX transformations to a function lowered and compiled for a particular signature.",
    ),
    (r"^(?:as_text|compiler_ir): the dialect is .*, but got '?(\w*)'?\.", "unknown dialect: {1}"),
    (r"^jit: there is no option ('.*') of XLA's compiler", "INVALID_ARGUMENT: No such compile option: {1}"),
    (r"^Compiling (\w+)\(", "Compiling jit({1}) with global shapes and types"),
    (r"^Finished compilation of (\w+) in ([\d.e-]+) s", "Finished XLA compilation of jit({1}) in {2} sec"),
    (r"^Finished tracing (\w+)\(.* for jit in ([\d.e-]+) s", "Finished tracing {1} for jit in {2} sec"),
    (
        r"^Cache miss of (.*), called at (.*?)\n  it is its first call\. A function made at the same line",
        "TRACING CACHE MISS at {2}: never seen function {1}, but seen another function defined on the same line",
    ),
    (
        r"^Cache miss of (.*), called at (.*?)\n  it is its first call",
        "TRACING CACHE MISS at {2}: never seen function {1}",
    ),
    (
        r"^Cache miss of (.*), called at (.*?)\n  the structure of the arguments",
        "TRACING CACHE MISS at {2}: for {1}: different input pytree",
    ),
    (
        r"^Cache miss of (.*), called at (.*?)\n  the options",
        "TRACING CACHE MISS at {2}: for {1}: tracing context doesn't match",
    ),
    (r"^Cache miss of (.*), called at (.*?)\n", "TRACING CACHE MISS at {2}: for {1}: different input types"),
    # what describes arrays
    ("^ShapeDtypeStruct needs a dtype", "ShapeDtypeStruct: dtype must be specified."),
    (r"^The shape of a ShapeDtypeStruct must be a tuple .* but is -?\d+\.", "'int' object is not iterable"),
    ("^len.. of a ShapeDtypeStruct without dimensions", "len() of unsized object"),
    (
        "(?:but got|argument .* is) a masked array of NumPy",
        "numpy masked arrays are not supported as direct inputs to JAX functions. Use arr.filled() to convert the "
        "value to a standard numpy array.",
    ),
    (
        r"^A Python integer .* takes an array without dimensions|^A Python index must be an integer",
        "Only integer scalar arrays can be converted to a scalar index.",
    ),
    (
        r"^A mesh must have a name for each of its axes (\(.*?\)), each another one, but got (\(.*?\))",
        "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second argument "
        "(`axis_names`), but got devices.ndim == {1:rank} and len(axis_names) == {2:rank}.",
    ),
    # values of traced arrays
    (
        rf"^lax.scan: the length: .* needs the value of a traced array {_SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {1:type}\n"
        "The `length` argument to `scan` expects a concrete `int` value.",
    ),
    (
        rf"^lax.scan: unroll: .* needs the value of a traced array {_SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {1:type}\n"
        "The `unroll` argument to `scan` expects a concrete `int` or `bool` value.",
    ),
    (
        rf"^A Python condition .* needs the value of a traced array {_SHAPE}",
        f"Attempted boolean conversion of traced array with shape {{1:type}}. "
        f"{_NOT_AVAILABLE}TracerBoolConversionError",
    ),
    (
        rf"^(float|int|complex)\(\) needs the value of a traced array {_SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {2:type}\n"
        f"The problem arose with the `{{1}}` function. If trying to convert the data type of a value, try using "
        f"`x.astype({{1}})` or `jnp.array(x, {{1}})` instead. {_NOT_AVAILABLE}ConcretizationTypeError",
    ),
    (
        rf"(?:^|: )A Python integer .* needs the value of a traced array {_SHAPE}",
        "The __index__() method was called on traced array with shape {1:type}. Shapes must be 1D sequences of "
        "concrete values of integer type.\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller "
        "subfunctions. "
        f"{_NOT_AVAILABLE}TracerIntegerConversionError",
    ),
    (
        rf"^A traced array {_SHAPE} of .* cannot become part of a NumPy array",
        "The numpy.ndarray conversion method __array__() was called on traced array with shape {1:type}. "
        f"{_NOT_AVAILABLE}TracerArrayConversionError",
    ),
    (
        rf"^A NumPy array .* needs the value of a traced array {_SHAPE}",
        "The numpy.ndarray conversion method __array__() was called on traced array with shape {1:type}. "
        f"{_NOT_AVAILABLE}TracerArrayConversionError",
    ),
    (
        rf"^A boolean mask as an index needs the value of a traced array {_SHAPE}",
        f"Array boolean indices must be concrete; got {{1:type}}. {_NOT_AVAILABLE}NonConcreteBooleanIndexError",
    ),
    (
        r"^A slice bound .* needs the value of a traced array",
        "Array slice indices must have static start/stop/step to be used with NumPy indexing syntax.",
    ),
    (
        r"^the slice (start|stop|step) of (\w+) needs the value of a traced array",
        "Abstract tracer value encountered where concrete value is expected: slice {1} of jnp.{2}",
    ),
    (
        rf"^(tobytes|tolist)\(\) needs the value of a traced array {_SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {2:type}\nThe "
        "{1}() method was called on traced array with shape {2:type}.",
    ),
    (
        rf"^arange, whose shape depends on its argument '(\w+)', needs the value of a traced array {_SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {2:type}. It "
        f"arose in the jnp.arange argument '{{1}}'. {_NOT_AVAILABLE}ConcretizationTypeError",
    ),
    (
        rf"needs the value of a traced array {_SHAPE}",
        "Abstract tracer value encountered where concrete value is expected: traced array with shape {1:type}. "
        f"{_NOT_AVAILABLE}ConcretizationTypeError",
    ),
    (
        rf"^A tracer {_SHAPE} is used after the traced function (.*), to which it belongs, has ended. "
        r"It was made (?:at )?(.*?)\. Return",
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a reference "
        "to an intermediate value with type {1:type} wrapped in a DynamicJaxprTracer to escape the scope of the "
        "transformation. JAX transformations require that functions explicitly return their outputs, and disallow "
        "saving intermediate values to global state. The function being traced when the value leaked was {2} traced "
        "for jit. The "
        f"leaked intermediate value was created on line {{3}}. {_NOT_AVAILABLE}UnexpectedTracerError",
    ),
    (
        rf"^A tracer {_SHAPE} is used after (.*), to which it belongs, has ended. "
        r"It was made (?:at )?(.*?)\. Return",
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a reference "
        "to an intermediate value with type {1:type} wrapped in a DynamicJaxprTracer to escape the scope of the "
        "transformation. JAX transformations require that functions explicitly return their outputs, and disallow "
        "saving intermediate values to global state. The function being traced when the value leaked was {2}. The "
        f"leaked intermediate value was created on line {{3}}. {_NOT_AVAILABLE}UnexpectedTracerError",
    ),
    (
        rf"^A batched function \(vmap\) has ended, but a tracer {_SHAPE} of it is left in (.*?)\. It was made (?:at )?"
        r"(.*)\. Return",
        "Leaked trace BatchTrace. Leaked tracer(s):\n\nVmapTracer({1:type})\n\nThis BatchTracer with object id 1 was "
        "created on line:\n  {3}\n<BatchTracer 1> is referred to by {2}",
    ),
    (
        rf"^The traced function (.*) has ended, but a tracer {_SHAPE} of it is left in (.*?)\. ",
        "Leaked trace DynamicJaxprTrace. Leaked tracer(s):\n\nJitTracer({2:type})\n\nThe error occurred while tracing "
        "the function {1} for jit.\n<DynamicJaxprTracer 1> is referred to by {3}",
    ),
    (
        r"^A tracer .* is used after",
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a reference "
        f"to an intermediate value to escape. {_NOT_AVAILABLE}UnexpectedTracerError",
    ),
    (
        r"^pmap of .*: static_broadcasted_argnums is (\(.*?\)), but the call has (\d+) positional",
        "pmapped function has static_broadcasted_argnums={1} but was called with only {2} positional argument. All "
        "static broadcasted arguments must be passed positionally.",
    ),
    # vmap
    (
        r"^vmap of .*: in_axes for argument .*: axis (\d+) is out of range for an array with (\d+) dimensions",
        "vmap was requested to map its argument along axis {1}, which implies that its rank should be at least "
        "{1:next}, "
        "but is only {2}",
    ),
    (r"^The name of a mesh axis must not be None", "Mesh axis names cannot be None."),
    (r"^vmap of .*: the mapped axes must have one size", "vmap got inconsistent sizes for array axes to be mapped:"),
    (
        r"^vmap of .*: in_axes must have one entry for each positional argument, but .* has (\d+) and the call "
        r"has (\d+)",
        "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to "
        "the function, but got len(in_axes)={1}, len(args)={2}",
    ),
    (
        r"^vmap of .*: in_axes (?:for argument .*: an axis is an integer, but got|must consist of integers and None, "
        r"but has|must be an axis, or a tuple .*?, but is) '?(.*?)'?[.;]",
        "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to "
        "the function, but got {1}.",
    ),
    (
        r"^vmap of .*: out_axes must consist of integers and None, but has (.*)\.",
        "vmap out_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to "
        "the function, but got {1}.",
    ),
    (
        r"^vmap of .*: no argument is mapped over",
        "vmap must have at least one non-None value in in_axes or axis_size must be specified. vmap wrapped function "
        "must be passed at least one argument containing an array or axis_size must be specified",
    ),
    (
        r"^vmap of .*: (in_axes|out_axes) is .*, which does not fit",
        "vmap {1} specification must be a tree prefix of the corresponding value; Mismatch details:",
    ),
    (
        r"^vmap of .*: the result(.*) differs between examples, along axis (\d+), but out_axes is None",
        "vmap has mapped output but out_axes is None: at vmap out_axes{1}, got axis spec None but output was "
        "batched on axis {2}",
    ),
    # loops and branches
    (
        rf"^lax.scan: the function must give a pair \(carry, y\), but gives {_SHAPE}",
        "scan body output must be a pair, got {1:type}.",
    ),
    (r"^lax.scan: the function must give a pair", "scan body output must be a pair, got"),
    (
        r"^lax.(cond|switch): The result of (.*?)(?: at (\S+))? is a Ref",
        "function {2} traced for {1} returned a mutable array reference of type Ref at output tree path result{3}",
    ),
    (
        r"^The result of (.*?)(?: at (\S+))? is a Ref(?:, made at (.*?))?, which",
        "function {1} traced for jit returned a mutable array reference of type Ref at output tree path result{2}, but "
        "mutable array references cannot be returned.\n\nThe returned mutable array was created on line {3}.",
    ),
    (
        r"^jit of (.*): the result(.*) is a Ref, (?:made at (.*)|(passed in as the argument .*)); give the array",
        "function {1} traced for jit returned a mutable array reference of type Ref at output tree path result{2}, but "
        "mutable array references cannot be returned.\n\nThe returned mutable array was created on line {3} or was "
        "{4}.",
    ),
    (
        r"^(?:lax\.)?(\w+) of (.*): a Ref is passed twice, as the arguments (.*) and (.*); a",
        "only one reference to a mutable array may be passed as an argument to a function, but when tracing {2} for "
        "{1} the mutable array reference of type Ref appeared at both {3} and {4}.",
    ),
    (
        r"^(?:lax\.)?(\w+) of (.*): a Ref is used from around and passed as the argument (.*); a",
        "when tracing {2} for {1}, a mutable array reference of type Ref was both closed over and passed as the "
        "argument {3}",
    ),
    (
        r"^(.*): the residuals(\S*) of the forward rule (.*) have a Ref that is no argument",
        "custom_vjp fwd function {3} returned a mutable array reference of type Ref at output tree path {2} that was "
        "not an argument.",
    ),
    (
        r"^A Ref is used inside a batched function \(vmap\)",
        "performing a set/swap operation with vmapped value on an unbatched array reference of type Ref. Move the "
        "array reference to be an argument to the vmapped function?",
    ),
    (
        r"^A Ref of (\w+) cannot hold a value of (\w+)",
        "Invalid dtype for `swap`. Ref dtype: {1}. Value dtype: {2}.",
    ),
    (r"^(lax\.\w+) takes functions, but got (.*) of type", "{1}: expected a callable value, got {2}"),
    (r"^lax.scan: unroll must be", "`unroll` must be a `bool` or a positive `int`."),
    (
        r"^lax.fori_loop: unroll takes a range of known numbers",
        "Can only use `unroll` in `fori_loop` if the loop bounds are statically known.",
    ),
    (
        rf"^lax.(scan|while_loop|fori_loop): .* is {_SHAPE}.* at the start, but the function makes it {_SHAPE}",
        "{1} body function carry input and carry output must have equal types, but they differ: the input carry "
        "has type "
        "{2:type} but the corresponding output carry component has type {3:type}",
    ),
    (
        r"^lax.(scan|while_loop|fori_loop): what is carried is split as (\S+) at the start, but .* makes it (\S+);",
        "{1} body function carry input and carry output must have equal types, but they differ: the input carry "
        "has type {2} but the corresponding output carry component has type {3}",
    ),
    (
        r"^lax.(cond|switch): the results of all functions must be split alike, but one is (\S+) or (\S+?)[; ]",
        "{1} branches must have equal output types but they differ: {2} and {3}",
    ),
    (
        r"^lax.(scan|while_loop|fori_loop): the function must give what is carried in the structure",
        "{1} body function carry input and carry output must have the same pytree structure, but they differ:",
    ),
    (r"^lax.scan: without arrays in xs", "scan got no values to scan over and `length` not provided."),
    (
        r"^lax.scan: the arrays of xs must have first axes of one size, the length (\d+), but xs is \w+\[(\d+)",
        "scan got `length` argument of {1} which disagrees with leading axis sizes [{2}].",
    ),
    (
        r"^lax.scan: the arrays of xs must have first axes of one size, \((\d+),\), but .* is \w+\[(\d+)",
        "scan got values with different leading axis sizes: {1}, {2}.",
    ),
    (
        r"^lax.scan: the arrays of xs must have first axes of one size",
        "scan got values with different leading axis sizes:",
    ),
    (
        r"^lax.(?:scan|map): each array of xs must have a first axis",
        "scan got value with no leading axis to scan over:",
    ),
    (
        r"^lax.while_loop: cond_fun must give one pred without dimensions, but it gives ([\[({].*?);",
        "cond_fun must return a boolean scalar, but got pytree PyTreeSpec({1}).",
    ),
    (
        rf"^lax.while_loop: cond_fun must give one pred without dimensions, but it gives {_SHAPE}",
        "cond_fun must return a boolean scalar, but got output type(s) [ShapedArray({1:type})].",
    ),
    (
        r"^lax.fori_loop: lower and upper must be integers",
        "lower and upper arguments to fori_loop must have equal types",
    ),
    (rf"^lax.cond: pred must be .*, but is {_SHAPE}", "Pred must be a scalar, got array of shape {1:shape}."),
    (r"^lax.cond takes arrays and numbers, but got None", "cond predicate is None"),
    (
        r"^lax.cond takes arrays and numbers, but got (<.*>) of type",
        "Pred type must be either boolean or number, got {1}",
    ),
    (
        r"^lax.cond takes arrays and numbers, but got '?(.*?)'? of type (\w+)",
        "Pred must be a scalar, got {1} of type <class '{2}'>",
    ),
    (
        r"^lax.switch takes arrays and numbers, but got '?(.*?)'? of type (?!tuple|list)",
        "Index type must be an integer, got {1}.",
    ),
    (
        r"^lax.switch takes arrays and numbers, but got (.*) of type",
        "Branch index must be scalar, got {1} of shape ({1:rank},).",
    ),
    (
        r"^lax.(cond|switch): the results of all functions must have one structure",
        "{1} branch outputs must have the same pytree structure, but they differ:",
    ),
    (
        r"^lax.(cond|switch): the results of all functions must",
        "{1} branches must have equal output types but they differ.",
    ),
    (rf"^lax.switch: the index must be .*, but is {_SHAPE} \(", "Index type must be an integer, got {1:dtype}"),
    (
        rf"^lax.switch: the index must be .*, but is {_SHAPE}",
        "Branch index must be scalar, got array of shape {1:shape}.",
    ),
    (
        r"^lax.platform_dependent: there is neither a default nor a function for '(\w+)'",
        "MLIR translation rule for primitive 'platform_index' not found for platform {1}",
    ),
    (r"^lax.switch takes at least one branch", "Empty branch sequence"),
    (
        r"(?:^|\.)(\w+): there is no axis named '(\w+)'",
        "unbound axis name: {2}. Found an unbound axis name: {2}. To fix this, please call {1} under `jax.shard_map`.",
    ),
    (r": there is no axis named '(\w+)'", "unbound axis name: {1}. Found an unbound axis name: {1}."),
    (
        r"^shard_map: (\w+) has (P.*\)), but the function is about the axes .* only; leave out \['(\w+)'",
        "shard_map {1} refers to '{3}', which is not among axis_names: {2}.",
    ),
    (
        r"^shard_map: the examples of vmap are split along the mesh axis '(\w+)', by spmd_axis_name or their",
        "vmap spmd_axis_name cannot appear in shard_map in_specs or out_specs: {1}.",
    ),
    (
        r"^lax.with_sharding_constraint: (P.*\)) names the axis '(\w+)', which the function of parts",
        "The spec {1} contains a manual axes {{'{2}'}} of mesh.",
    ),
    (
        r"^lax.custom_\w+: (\w+) must give what has the structure and shapes of its argument, (.*?) of (\[.*?\]), "
        r"but gives \2 of (\[.*?\])\.",
        "{1}() output shapes must match, got {4} and {3}",
    ),
    (
        r"^lax.custom_\w+: (\w+) must give what has the structure and shapes of its argument, (.*?) of .*, "
        r"but gives (.*) of",
        "{1}() output pytree structure must match, got {3} and {2}",
    ),
    (
        r"^lax.custom_\w+: what (\w+) gives must have the structure (.*), but has (.*)\.",
        "{1}() output pytree structure must match, got {3} and {2}",
    ),
    (
        r"^lax.custom_\w+: what (\w+) gives must have the shape (.*), but is (.*)\.",
        "{1}() output shapes must match, got {3} and {2}",
    ),
    (r"^lax.custom_linear_solve: a derivative in reverse mode needs", "transpose_solve required for backwards mode"),
    # trees
    (
        r"^tree_unflatten: .* has (\d+) leaves, but (\d+) were given",
        "Too few leaves for PyTreeDef; expected {1}, got {2}",
    ),
    (r"^register_pytree_node: (\w+) is registered already", "Duplicate custom PyTreeDef type registration for {1}"),
    ("^device_put: may_alias and donate must not be both", "may_alias and donate cannot be True at the same time."),
    (
        r"^dtype\(\[\('float0', 'V'\)\]\) is not an element type",
        "float0s do not support any operations by design, because they are not compatible with non-trivial vector "
        "spaces.",
    ),
    # arrays
    (r"^Arrays are immutable", "JAX arrays are immutable and do not support in-place item assignment."),
    (
        r"nested lists have unequal lengths",
        "setting an array element with a sequence. The requested array has an inhomogeneous shape",
    ),
    (r"None (?:of type|is no number)", "None is not a valid value for jnp.array"),
    (
        r"^(?:array|asarray): ('.*') is no number",
        "Value {1} is not a valid JAX array type. Only arrays of numeric types are supported by JAX.",
    ),
    (
        r"^lax\.(\w+) takes arrays and numbers, but got (.*) of type (\w+)",
        "Error interpreting argument to {1} as a JAX value. The problematic value is of type <class '{3}'> and was "
        "passed to {1}. Argument {2} of type <class '{3}'> is not a valid JAX type",
    ),
    (
        r"^(?:[\w.]+: )?(?:[\w.]*\.)?([\w\[\]]+) takes arrays and numbers, but got (.*) of type (\w+)",
        "{1} requires ndarray or scalar arguments, got <class '{3}'> at position 0. Value {2} is not a valid JAX array "
        "type. Only arrays of numeric types are supported by JAX.",
    ),
    (
        r"reshape: an array of shape (\(.*?\)) has (\d+) elements, but (\(.*?\)) takes (\d+)",
        "cannot reshape array of shape {1} (size {2}) into shape {3} (size {4})",
    ),
    (r"^\w+: takes a sequence of at least one array", "Need at least one array to concatenate."),
    (r"^\w*stack: the arrays have one shape, but got (.*?)\.?$", "All input arrays must have the same shape."),
    (
        r"shapes (\(.*?\)) and (\(.*?\)) do not fit: axis \d+ of the first has size (\d+), axis \d+ of the "
        r"second (\d+)",
        "dot_general requires contracting dimensions to have the same shape, got ({3},) and ({4},).",
    ),
    (
        r"^(\w+): Incompatible shapes for broadcasting: (\(.*?\)) and (\(.*?\))",
        "{1} got incompatible shapes for broadcasting: {2}, {3}. Incompatible shapes for broadcasting: "
        "shapes=[{2}, {3}]",
    ),
    (
        r"Incompatible shapes for broadcasting: (\(.*?\)) and (\(.*?\))",
        "got incompatible shapes for broadcasting: {1}, {2}. Incompatible shapes for broadcasting: shapes=[{1}, {2}]",
    ),
    (r"^matmul: takes vectors and matrices", "matmul input operand must have ndim at least 1, but it has ndim 0"),
    (
        r"^indexing: a list is no index .*; write x\[(\w+)\(index\)\]",
        "Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[{1}(seq)]` instead of "
        "`arr[seq]`. See https://github.com/jax-ml/jax/issues/4564 for more information.",
    ),
    (
        r"^indexing: index -?\d+ is out of range for axis (\d+) of size 0",
        "index is out of bounds for axis {1} with size 0",
    ),
    (
        r"^indexing: index (-?\d+) is out of range for axis (\d+) of size (\d+)",
        "index {1} is out of bounds for axis {2} with size {3}. Out of bound indexer: idx={1}, dim={3}.",
    ),
    (r"^take: axis \d+ of the array .* is empty", "Cannot do a non-empty jnp.take() from an empty axis."),
    (r"^indexing: an axis of the array .* is empty: no index", "index is out of bounds for axis with size 0"),
    (
        r"^indexing: a boolean mask has size (\d+) where the array of shape (\(.*?\)) has (\d+)",
        "boolean index did not match shape of indexed array in index: got ({1},), expected ({3},)",
    ),
    (r"^indexing: '(.*)' is no index", "JAX does not support string indexing; got idx='{1}'"),
    (
        r"^numpy.take_along_axis: .*indices are integers or booleans, but got an array of (\w+)",
        "take_along_axis indices must be of integer type, got {1}",
    ),
    (
        r"indices are integers or booleans, but got an array of (\w+)",
        "Indexer must have integer or boolean type, got indexer with type {1}",
    ),
    (
        r"^indexing: (\d+) indices are too many for an array of shape (\(.*?\))",
        "Too many indices: array is {2:rank}-dimensional, but {1} were indexed",
    ),
    (
        r"^rot90: axis -?\d+ is out of range for an array with (\d+) dimensions",
        "rot90 requires its first argument to have ndim at least two, but got first argument of {1} dimensions",
    ),
    (
        r": axis (-?\d+) is out of range for an array with (\d+) dimensions",
        "axis {1} is out of bounds for array of dimension {2}",
    ),
    (r": the axes (\(.*?\)) name a dimension twice", "duplicate value in 'axis': {1}. repeated axis"),
    (r"take: mode is one of .*, but got 'raise'", "The 'raise' mode to jnp.take is not supported."),
    (r"take: mode is one of .*, but got ('.*')", "Invalid mode {1} for np.take"),
    (
        r"^(\w+): arrays of shapes (.*) broadcast though they have different ranks\.$",
        "Following NumPy automatic rank promotion for {1} on shapes {2:words}. Set the jax_numpy_rank_promotion config "
        "option to 'allow' to disable this warning; for more information, see "
        "https://docs.jax.dev/en/latest/rank_promotion_warning.html.",
    ),
    (
        r"^(\w+): arrays of shapes (.*) broadcast though they have different ranks",
        "Operands could not be broadcast together for {1} on shapes {2:words} and with the config option "
        "jax_numpy_rank_promotion='raise'.",
    ),
    (
        r"^(?:numpy\.\w+: )?The element types (.* and \S+) differ, and numpy_dtype_promotion is 'strict'",
        "Input dtypes ({1:names}) have no available implicit dtype promotion path when "
        "jax_numpy_dtype_promotion=strict.",
    ),
    (
        r"^There is no implicit promotion between (.*f8\w+.*); convert",
        "Input dtypes ({1:names}) have no available implicit dtype promotion path. To avoid unintended promotion, "
        "8-bit floats do not support implicit promotion.",
    ),
    (
        r"^(?:numpy\.\w+: )?There is no implicit promotion between (.*); convert",
        "Input dtypes ({1:names}) have no available implicit dtype promotion path.",
    ),
    (r"^(\w+): the result has a NaN", "invalid value (nan) encountered in {1}"),
    (r"^(\w+): the result has an? inf", "invalid value (inf) encountered in {1}"),
    (
        r"^An array of shape \(.*\b0\b.*\) is neither true nor false",
        "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty.",
    ),
    (
        r"^An array of shape .* is neither true nor false",
        "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()",
    ),
    (
        r"^\w+\(\) takes an array without dimensions, but this one has the shape (\(.*?\));",
        "Only scalar arrays can be converted to Python scalars; got arr.ndim={1:rank}",
    ),
    (r"^An array without dimensions cannot be iterated over", "iteration over a 0-d array"),
    (r"^len\(\) of an array without dimensions", "len() of unsized object"),
    (
        r"^item\(\): \((\d+),\) is no place in an array of shape \((\d+),\)",
        "index {1} is out of bounds for axis 0 with size {2}",
    ),
    (
        r"^at\[\].\w+: values of shape (\(.*?\)) do not broadcast to the elements' shape (\(.*?\))",
        "Incompatible shapes for broadcasting: {1} and requested shape {2}",
    ),
    (
        r"^concatenate: shapes (.*) and (.*) differ outside axis (\d+)",
        "Cannot concatenate arrays with shapes that differ in dimensions other than the one being concatenated: "
        "concatenating along dimension {3} for shapes {1}, {2}.",
    ),
    (r"^There is no option '(\w+)'", "Unrecognized config option: jax_{1}"),
    (
        r"^debug.print: the text .* has no place for (\d+)",
        "Unused positional arguments to `jax.debug.print`: [{1}",
    ),
    (
        r"^einsum: the result of .* names the axis '(.)', which no operand has",
        "Output character '{1}' did not appear in the input",
    ),
    (r"^where: takes a condition alone, or both", "Either both or neither of the x and y arguments should be provided"),
    (r"^vectorize: '(.*)' is no signature", "not a valid gufunc signature: {1}"),
    (
        r"^vectorize: the signature '(.*)' is for (\d+) arguments, but (\d+) are mapped",
        "wrong number of positional arguments: expected {2}, got {3}",
    ),
    (
        r"^vectorize: excluded must have numbers of arguments, from 0, and names, but is (\{.*-\d.*\})",
        "jax.numpy.vectorize can only exclude integer or string arguments, but excluded={1} contains negative numbers",
    ),
    (
        r"^vectorize: excluded must have numbers of arguments, from 0, and names, but is (\{.*\})",
        "jax.numpy.vectorize can only exclude integer or string arguments, but excluded={1}",
    ),
    (
        r"^vectorize: by '.*' (?:result|argument) (\d+) has size (\d+) in dimension (\w+), but got size (\d+)",
        "inconsistent size for core dimension '{3}': {4} vs {2}",
    ),
    (
        r"^vectorize: Cannot pass None at locations (\{.*\}), which have core dimensions in '(.*)'",
        "Cannot pass None at locations {1} with signature='{2}'",
    ),
    (r"^vectorize: by '.*' there are (\d+) results, but there is one", "output must be a tuple"),
    (
        r"^vectorize: by '.*' there are (\d+) results, but there (?:is|are) (\d+)",
        "wrong number of output arguments: expected {1}, got {2}",
    ),
    (
        r"^vectorize: by '.*->(.*)' result \d+ has \d+ dimensions, but got shape (\(.*?\))",
        "output shape {2} does not match core dimensions {1}",
    ),
    (
        r"^vectorize: by '(.*)' argument \d+ has \d+ dimensions, but got shape (\(.*?\))",
        "input with shape {2} does not have enough dimensions for all core dimensions on vectorized function with "
        "excluded=frozenset() and signature='{1}'",
    ),
    (r"^named_scope takes a string", "named_scope name argument must be a string."),
    (
        r"^numpy.\w+: The Python integer -?(?:9[2-9]\d{17}|\d{20,}) does not fit the element type",
        "Python int too large to convert to C long",
    ),
    (
        r"^numpy.\w+: The Python integer (-?\d+) does not fit the element type (\w+)",
        "Python int {1} too large to convert to {2}",
    ),
    (
        r"^([\w-]+): got random keys of (key<\w+>), but keys are no numbers",
        "{1:op} does not accept dtype {2}. Accepted dtypes are subtypes of number.",
    ),
    (r"^int\* and (key<\w+>) differ, and random keys are no numbers", "add does not accept dtypes {1}, int32."),
    (
        rf"^linalg.(\w+): takes square matrices, but got {_SHAPE}",
        "Argument to {1} must have shape [..., n, n], got {2:shape}.",
    ),
    (r"split: axis \d+ of size (\d+) does not divide into", "array split does not result in an equal division"),
    (r"^(?:nan)?(arg\w+): axis \d+ of shape .* is empty", "attempt to get {1} of an empty sequence"),
    (
        r"^(\w+): axis \d+ of shape .* is empty and has no",
        "zero-size array to reduction operation {1} which has no identity",
    ),
    (
        r"squeeze: axis (\d+) of an array of shape (\(.*?\)) has size",
        "cannot select an axis to squeeze out which has size not equal to one, got shape={2} and dimensions=({1},)",
    ),
    (
        r"transpose: axes (\(.*?\)) is no order of the .* axes of an array (\(.*?\))",
        "transpose permutation isn't a permutation of operand dimensions, got permutation {1} for operand shape {2}.",
    ),
    (r"^linspace: num is not negative, but got (-?\d+)", "Number of samples, {1}, must be non-negative."),
    (
        r"^bincount: takes a vector of integers, but got (\w+)",
        "x argument to bincount must have an integer type; got {1}",
    ),
    # random numbers
    (
        r"^tinyxla.random.(\w+): the numbers are .*, but got dtype (\w+)",
        "dtype argument to `{1}` must be a float dtype, got {2}",
    ),
    (
        r"^tinyxla.random.bits: bits are unsigned integers, but the dtype asked for is (\w+)",
        "dtype argument to `bits` must be an unsigned int dtype, got {1}",
    ),
    (
        rf"^tinyxla.random.\w+: a key is made by .*, or a u32\[(\d+)\] array of the words .*, but got {_SHAPE}",
        "JAX encountered invalid PRNG key data: expected key_data.shape to end with ({1},); got shape={2:shape}",
    ),
    (
        r"^tinyxla.random.\w+: the first argument is a key, .* but got (.*)\.",
        "JAX encountered invalid PRNG key data: expected key_data to have ndim, shape, and dtype attributes. Got {1}",
    ),
    (
        r"^tinyxla.random.(\w+): takes a single key, but got [\w<>]+\[(.*?)\]",
        "{1} accepts a single key, but was given a key array of shape ({2},)",
    ),
    (r"^tinyxla.random.\w+: a seed is an integer", "PRNG key seed must be an integer"),
    (
        r"^tinyxla.random.(\w+): the seed is one integer",
        "{1} accepts a scalar seed, but was given an array of shape",
    ),
    (
        r"^tinyxla.random.\w+: impl must be one of .*, but got (.*)\.",
        "unrecognized PRNG implementation: {1}",
    ),
    (
        r"^tinyxla.random.\w+: impl must be .*, but is .* of type (\w+)\.",
        "unrecognized type {1} for specifying PRNG implementation.",
    ),
    (
        r"^tinyxla.random.categorical: (\d+) of (\d+) indices cannot be chosen",
        "Number of samples without replacement ({1}) cannot exceed number of categories ({2}).",
    ),
    (
        r"^tinyxla.random.\w+: got a key as an array of words",
        "Legacy uint32 key array passed as key to jax.random function.",
    ),
    (
        r"^tinyxla.random.choice: (\d+) elements cannot be chosen among (\d+)",
        "Cannot take a larger sample (size {1}) than population (size {2}) when 'replace=False'",
    ),
    (r"^tinyxla.random.permutation: x is an integer", "x must be an integer or at least 1-dimensional"),
)


@functools.cache
def _rows() -> list[tuple[re.Pattern[str], str]]:
    """The table with its patterns compiled, which takes as long as a tenth of the import."""
    return [(re.compile(pattern), template) for pattern, template in (*LAX_TABLE, *NUMPY_TABLE, *_TABLE)]


_KINDS = {"signed": "integer", "unsigned": "integer", "float": "floating", "complex": "complexfloating", "pred": "bool"}
_NAMES = UNARY | BINARY


def _kinds(given: str) -> str:
    """Kinds of element types as JAX names and orders them."""
    found = {_KINDS.get(kind, kind) for kind in given.split(", ")}
    return ", ".join(kind for kind in ("integer", "floating", "complexfloating", "bool") if kind in found)


def _size_of_dimension(given: str) -> str:
    """The size in "dimension 1 of (8, 3)"."""
    found = re.search(r"dimension (\d+) of \((.*?)\)", given)
    return found[2].split(",")[int(found[1])].strip() if found else ""


def _of_shape(given: str, spec: str) -> str:
    """A type like `f32[3]` in another notation."""
    name, _, sizes = given.rstrip("]").partition("[")
    dtype = element_type(name).dtype.name
    dimensions = [int(n) for n in sizes.split(",") if n]
    notations = {
        "dtype": dtype,
        "shape": str(tuple(dimensions)),
        "list": str(dimensions),
        "ndim": str(len(dimensions)),
        "type": f"{dtype}[{sizes}]",
    }
    return notations[spec]


def _path(given: str) -> str:
    """The path of an argument, `0['w']` or `scale`."""
    found = re.match(r"\w+", given)
    name = found[0] if found else ""
    return f"args[{name}]{given[len(name) :]}" if name.isdigit() else f"kwargs[{name!r}]{given[len(name) :]}"


def _mismatch(given: str) -> str:
    """What differs in "argument 0 must be f32[4], but is f32[6]"."""
    name, wanted, found = re.search(rf"argument (\S+) must be {_TYPE}, but is {_TYPE}", given).groups()  # type: ignore[union-attr]
    path = _path(name)
    (wanted_type, _, wanted_sizes), (type_, _, sizes) = (x.rstrip("]").partition("[") for x in (wanted, found))
    pairs = [*zip(wanted_sizes.split(","), sizes.split(","), strict=False)]
    if wanted_sizes.count(",") != sizes.count(",") or bool(wanted_sizes) != bool(sizes):
        shapes = [tuple(n for n in x.split(",") if n) for x in (wanted_sizes, sizes)]
        return f"Rank mismatch for {path}: expected {shapes[0]} and called with {shapes[1]}."
    if wanted_type != type_:
        return f"Dtype mismatch for {path}: expected {wanted_type} and called with {type_}."
    k = next((k for k, (a, b) in enumerate(pairs) if a.isdigit() and a != b), 0)
    return (
        f"Shape mismatch for {path}.shape[{k}] (expected same constant): {pairs[k][0]} and called with {pairs[k][1]}."
    )


_NOTATIONS: dict[str, Callable[[str], str]] = {
    "next": lambda given: str(int(given) + 1),
    "path": _path,
    "str": lambda given: re.sub(r"^array\((.*?)(, dtype=\w+)?\)$", r"\1", given),
    "mismatch": _mismatch,
    "rank": lambda given: str(len([n for n in given.strip("()").split(",") if n.strip()])),
    "lower": str.lower,
    "jax": lambda given: "container/pytree structure" if given == "structure" else "shapes/dtypes of",
    "types": lambda given: re.sub(_SHAPE, lambda found: _of_shape(found[0], "type"), given),
    "bare": lambda given: given.replace("'", ""),
    "name": lambda given: given.strip("*") if given.endswith("*") else element_type(given).dtype.name,
    "names": lambda given: ", ".join(repr(format(_Group(one), "name")) for one in given.split(" and ")),
    "words": lambda given: given.replace("), (", ") ("),
    "op": lambda given: _NAMES.get(given, given),
    "place": lambda given: " at position 0" if given in BINARY or (given in BITWISE and given != "not") else "",
    "kinds": _kinds,
    "axes": lambda given: "{" + ",".join(sorted(set(re.findall(r"'(\w+)'", given)))) + "}",
    "size": _size_of_dimension,
    "iterable": lambda given: " where 'children' is iterable" if given.count(",") == 1 else "",
}


class _Group(str):
    """A part of a message, which formats as another notation of the same."""

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return _NOTATIONS[spec](str(self)) if spec in _NOTATIONS else _of_shape(str(self), spec)


def jax_words(message: str) -> str:
    """What JAX says for the same mistake; nothing where that is not known.

    >>> jax_words("grad of f: the function must return one floating-point number, but returned f32[3]. Return its sum")
    'Gradient only defined for scalar-output functions. Output had shape: (3,).'
    """
    for pattern, template in _rows():
        found = pattern.search(message)
        if found:
            words = template.format(_Group(found[0]), *(_Group(group or "") for group in found.groups()))
            return words + _cause(message)
    return ""


def _cause(message: str) -> str:
    """What JAX says of what a traced value depends on."""
    found = re.search(
        r"are known; it (?:depends on the arguments? (.*?)|is computed by (\d+) operations?, at (.*?))\. ", message
    )
    if not found:
        return ""
    if found[2]:
        more = "\n\n(Additional originating lines are not shown.)" * (int(found[2]) > 5)
        return f" This value became a tracer due to JAX operations on these lines:\n\n  {found[3]}{more}"
    plural = "s" * (" and " in found[1])
    return (
        " This concrete value was not available in Python because it depends on the "
        f"value{plural} of the argument{plural} {found[1]}."
    )


def in_jax(message: str) -> str:
    """A message with what JAX says in its place, where that is known."""
    said = jax_words(message)
    return f"{message}\n  In JAX: {said}" if said else message


def with_jax_words(of_error: Any) -> Any:
    """The text of an error, with JAX's names of modules, followed by what JAX says for the same mistake: its attribute
    `in_jax`, or by the table."""

    def text(self: Any) -> str:
        own: str = of_error(self)
        differences = getattr(self, "differences", None)
        if differences and differences.places:
            said = difference_words(differences)
        else:
            said = getattr(self, "in_jax", "") or jax_words(own)
        own = _MODULES.sub("jax.", own)
        return f"{own}\n  In JAX: {said}" if said and said not in own else own

    return text


# A name that a module lacks is tinyxla's to have.
_MODULES = re.compile(
    r"(?<!module )\btinyxla\.(?=(?:numpy|random|scipy|lax|nn|tree|tree_util|debug|dtypes|ops|image)\b)"
)
