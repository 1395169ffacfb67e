"""Key-reuse analysis: which random keys a jaxpr consumes, makes and passes on, and an error for one that is consumed
twice.

A signature says that of a primitive, a jaxpr or a function: a `Sink` is an operand that is consumed, a `Source` a
result that is a fresh key, a `Forward` a result that is an operand's key. It is `jax.experimental.key_reuse`. Jaxprs
hold keys as their words, so the analysis first infers which variables are keys: those that primitives of keys take and
give, and what only moves their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.jax.jaxprs.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Var
from tinyxla.jax.jaxprs.primitives.catalogue import LaxPrimitive, primitives
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive
from tinyxla.jax.jaxprs.primitives.random_primitives import RANDOM
from tinyxla.jax.jaxprs.staging import closed_jaxpr
from tinyxla.jax.jaxprs.traces.recording import is_recording
from tinyxla.jax.random_keys.consumed_keys import (
    KeyReuseError,
    consume as mark_consumed,
    consumption,
    is_checking,
    mark,
)
from tinyxla.shapes import KeyType
from tinyxla.tracing import pytrees
from tinyxla.transforms.key_arrays import KeyArray

Mask = Any  # True, False, or an array of bool: one for each key


# --- signatures -------------------------------------------------------------------------------------------------------


class _Use:
    """An operand or result by its number, and which of its keys are meant."""

    idx: int
    mask: Mask

    def __init__(self, idx: int, mask: Mask = True) -> None:
        found: Any = np.asarray(mask)
        if found.dtype != bool:
            raise AssertionError(f"{type(self).__name__}: the mask must be of bool, but is {found.dtype}.")
        if not found.ndim or found.all() or not found.any():
            found = bool(found.size and found.all())
        else:
            found = found.copy()
            found.flags.writeable = False
        vars(self).update(idx=idx, mask=found)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"{type(self).__name__} is immutable")

    def _key(self) -> Any:
        mask = self.mask if isinstance(self.mask, bool) else (self.mask.shape, self.mask.tobytes())
        return type(self).__name__, self.idx, mask

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Use) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.idx}{'' if self.mask is True else f', {self.mask}'})"


class Sink(_Use):
    """An operand that is consumed."""


class Source(_Use):
    """A result that is a fresh key."""


class Forward(NamedTuple):
    """A result that is the key of an operand."""

    in_idx: int
    out_idx: int

    def __repr__(self) -> str:
        return f"Forward({self.in_idx}, {self.out_idx})"


class KeyReuseSignature:
    """What is done with keys: a set of sinks, sources and forwards.

    >>> KeyReuseSignature(Source(0), Sink(0)) == KeyReuseSignature(Sink(0), Source(0))
    True
    """

    def __init__(self, *uses: Sink | Source | Forward) -> None:
        self._uses = frozenset(uses)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyReuseSignature) and self._uses == other._uses

    def __hash__(self) -> int:
        return hash(self._uses)

    def __repr__(self) -> str:
        order = (Sink, Source, Forward)
        uses = sorted(
            self._uses, key=lambda use: (order.index(type(use)), use[0] if isinstance(use, Forward) else use.idx)
        )
        return f"KeyReuseSignature{tuple(uses)}"

    def _of(self, kind: type) -> Iterator[Any]:
        return (use for use in self._uses if isinstance(use, kind))

    sinks = property(lambda self: self._of(Sink))
    sources = property(lambda self: self._of(Source))
    forwards = property(lambda self: self._of(Forward))


SignatureOf = Callable[[JaxprEqn, set[Var]], KeyReuseSignature]


# --- primitives of the analysis ---------------------------------------------------------------------------------------


class Expected:
    """The consumption that `assert_consumed` expects: compared by identity, since it is a parameter."""

    def __init__(self, val: Mask) -> None:
        self.val = val


def _identity(name: str) -> Primitive:
    made = Primitive(name)
    made.def_impl(lambda x, **params: x)
    made.def_abstract_eval(lambda x, **params: x)
    return made


consume_p = _identity("consume")
assert_consumed_value_p = _identity("assert_consumed_value")


def consume(key: Any) -> Any:
    """The key, which counts as consumed."""
    return consume_p.bind(key)


def assert_unconsumed(key: Any) -> None:
    """Let `check_key_reuse` raise an `AssertionError` where the key is consumed."""
    assert_consumed_value_p.bind(key, value=Expected(False))


def assert_consumed(key: Any, value: Mask = True) -> None:
    """Let `check_key_reuse` raise an `AssertionError` unless the key is consumed, or of several those of a mask."""
    assert_consumed_value_p.bind(key, value=Expected(value))


# --- which variables are keys -----------------------------------------------------------------------------------------

_MAKES = ("random_seed", "random_split", "random_fold_in", "random_wrap", "random_clone")
_TAKES = ("random_split", "random_fold_in", "random_bits", "random_unwrap", "random_clone", "random_gamma")
_MOVES = """broadcast_in_dim copy dynamic_slice gather pad reshape rev slice squeeze transpose reduce_precision
    consume assert_consumed_value device_put""".split()
_JOINS = {"dynamic_update_slice": (0, 1), "scatter": (0, 2)}


def _linked(eqn: JaxprEqn) -> Iterator[tuple[Sequence[Atom], bool]]:
    """Atoms that are keys if one of them is, and whether they are for sure."""
    name, operands, results = eqn.primitive.name, eqn.invars, eqn.outvars
    if name in _TAKES:
        yield operands[:1], True
    if name in _MAKES:
        yield results, True
    if name in _MOVES:
        yield [operands[0], results[0]], False
    elif name == "concatenate":
        yield [*operands, *results], False
    elif name == "select_n":
        yield [*operands[1:], *results], False
    elif name in _JOINS:
        yield [*(operands[k] for k in _JOINS[name]), *results], False
    elif name == "optimization_barrier":
        yield from ((pair, False) for pair in zip(operands, results, strict=True))
    elif name == "scan":
        start, count = eqn.params["num_consts"], eqn.params["num_carry"]
        yield from ((pair, False) for pair in zip(operands[start : start + count], results, strict=False))
    elif name == "while":
        yield from ((pair, False) for pair in zip(operands[-len(results) :], results, strict=True))


class _Called(NamedTuple):
    """A jaxpr in an equation: its inputs are these operands, and its first results those of the equation."""

    jaxpr: Jaxpr
    operands: Sequence[Atom]
    results: Sequence[Var]


def _called(eqn: JaxprEqn) -> list[_Called]:
    params, operands, results = eqn.params, eqn.invars, eqn.outvars
    if eqn.primitive.name == "while":
        first = params["cond_nconsts"]
        carry = operands[len(operands) - len(results) :]
        second = operands[first : first + params["body_nconsts"]]
        test = _Called(params["cond_jaxpr"].jaxpr, [*operands[:first], *carry], ())
        return [test, _Called(params["body_jaxpr"].jaxpr, [*second, *carry], results)]
    if eqn.primitive.name == "cond":
        return [_Called(branch.jaxpr, operands[1:], results) for branch in params["branches"]]
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    if isinstance(inner, ClosedJaxpr):
        inner = inner.jaxpr
    return [_Called(inner, operands, results)] if isinstance(inner, Jaxpr) else []


def key_variables(jaxpr: Jaxpr, known: Iterable[Var] = ()) -> set[Var]:
    """The variables of a jaxpr that are keys, from those that are known to be."""
    keys = set(known)

    def join(atoms: Iterable[Atom], sure: bool) -> None:
        variables = [v for v in atoms if isinstance(v, Var)]
        if sure or any(v in keys for v in variables):
            keys.update(variables)

    before = -1
    while before != len(keys):
        before = len(keys)
        for eqn in jaxpr.eqns:
            for atoms, sure in _linked(eqn):
                join(atoms, sure)
            for called in _called(eqn):
                pairs = [
                    *zip(called.operands, called.jaxpr.invars, strict=False),
                    *zip(called.results, called.jaxpr.outvars, strict=False),
                ]
                inner = key_variables(called.jaxpr, [v for x, v in pairs if x in keys and isinstance(v, Var)])
                join([x for x, v in pairs if v in inner], True)
    return keys


# --- signatures of equations ------------------------------------------------------------------------------------------


def _unknown(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    """Of a program's primitive, of which nothing is known: it consumes its keys, and makes none. This library's own
    operations draw no numbers."""
    if isinstance(eqn.primitive, LaxPrimitive):
        return KeyReuseSignature()
    return KeyReuseSignature(*(Sink(k) for k, v in enumerate(eqn.invars) if v in keys))


def _slice(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    """The part is consumed, and the result is a fresh key."""
    params = eqn.params
    strides = params["strides"] or (1,) * len(params["start_indices"])
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    mask = np.zeros(eqn.invars[0].aval.shape, bool)
    mask[tuple(slice(*bound) for bound in bounds)] = True
    return KeyReuseSignature(Sink(0, mask.any(-1)), Source(0))


def _barrier(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    """Behind a barrier the gradient of `checkpoint` computes again, with the same keys on purpose."""
    return KeyReuseSignature(*(Source(k) for k in range(len(eqn.outvars))))


def _concatenate(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    if len(eqn.invars) == 1:
        return KeyReuseSignature(Forward(0, 0))
    return KeyReuseSignature(*(Sink(k) for k in range(len(eqn.invars))), Source(0))


def _call(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    (called,) = _called(eqn)
    return _inner(called, keys)


def _checkpoint(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    """The recomputation of a checkpoint in a gradient uses the keys of the forward pass again, on purpose."""
    return KeyReuseSignature() if eqn.params["differentiated"] else _call(eqn, keys)


def _inner(called: _Called, keys: set[Var]) -> KeyReuseSignature:
    jaxpr = called.jaxpr
    known = [v for x, v in zip(called.operands, jaxpr.invars, strict=False) if x in keys]
    return jaxpr_type_signature(jaxpr, known)


def _scan(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    signature = _call(eqn, keys)
    _check_repeated("scan body function", signature, eqn.params["num_consts"], eqn.params["num_carry"])
    return signature


def _while(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    test, body = _called(eqn)
    of_test, of_body = _inner(test, keys), _inner(body, keys)
    first, second, carry = eqn.params["cond_nconsts"], eqn.params["body_nconsts"], len(eqn.outvars)
    if any(True for _ in of_test.sinks):
        raise KeyReuseError(
            f"while_loop cond function leads to key reuse when repeatedly executed: it consumes keys, {of_test}."
        )
    _check_repeated("while_loop body function", of_body, second, carry, _sliced(body.jaxpr, second))
    uses = [Sink(s.idx + first, s.mask) for s in of_body.sinks]
    return KeyReuseSignature(*uses, *of_body.sources, *(Forward(f.in_idx + first, f.out_idx) for f in of_body.forwards))


def _sliced(jaxpr: Jaxpr, constants: int) -> set[int]:
    """The carries of a loop's body that stay, and of which each step reads a slice at a computed place."""
    found: set[int] = set()
    for k, v in enumerate(jaxpr.outvars):
        if v is jaxpr.invars[constants + k]:
            reads = [eqn for eqn in jaxpr.eqns if any(x is v for x in eqn.invars)]
            if all(e.primitive.name == "dynamic_slice" and isinstance(e.invars[1], Var) for e in reads):
                found.add(k)
    return found


def _check_repeated(
    what: str, signature: KeyReuseSignature, constants: int, carry: int, sliced: Iterable[int] = ()
) -> None:
    """An error for a step that consumes a constant, or a carry for which it gives no fresh key; of those that are
    `sliced` it is taken to read another key."""
    fresh = {s.idx for s in signature.sources}
    for sink in signature.sinks:
        k = sink.idx - constants
        if k < 0:
            raise KeyReuseError(
                f"{what} leads to key reuse when repeatedly executed: it consumes a key that is the same in all steps, "
                f"{signature}."
            )
        if k < carry and k not in fresh and k not in sliced:
            raise KeyReuseError(
                f"{what} leads to key reuse when repeatedly executed: it consumes a key of the carry without giving a "
                f"fresh one, {signature}."
            )


def _cond(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    """What some branch consumes is consumed; a fresh key is one that all branches make."""
    signatures = [_inner(called, keys) for called in _called(eqn)]
    sinks: dict[int, Mask] = {}
    for s in (s for signature in signatures for s in signature.sinks):
        sinks[s.idx] = np.logical_or(sinks.get(s.idx, False), s.mask)
    sources = set.intersection(*(set(signature.sources) for signature in signatures))
    forwards = set.intersection(*(set(signature.forwards) for signature in signatures))
    return KeyReuseSignature(
        *(Sink(k + 1, mask) for k, mask in sinks.items()),
        *sources,
        *(Forward(f.in_idx + 1, f.out_idx) for f in forwards),
    )


_PASSED = KeyReuseSignature(Forward(0, 0))
_BY_NAME: dict[str, KeyReuseSignature | SignatureOf] = {
    **dict.fromkeys(
        """assert_consumed_value broadcast_in_dim convert_element_type copy device_put dynamic_slice gather pad reshape
        rev squeeze transpose""".split(),
        _PASSED,
    ),
    "consume": KeyReuseSignature(Sink(0), Forward(0, 0)),
    "random_clone": KeyReuseSignature(Source(0)),
    "random_bits": KeyReuseSignature(Sink(0)),
    "random_gamma": KeyReuseSignature(Sink(0)),
    "random_fold_in": KeyReuseSignature(Source(0)),
    "random_seed": KeyReuseSignature(Source(0)),
    "random_split": KeyReuseSignature(Sink(0), Source(0)),
    "random_wrap": KeyReuseSignature(Source(0)),
    "random_unwrap": KeyReuseSignature(),
    "pure_callback": KeyReuseSignature(),
    "eq": KeyReuseSignature(),
    "ne": KeyReuseSignature(),
    "dynamic_update_slice": KeyReuseSignature(Sink(1), Forward(0, 0)),
    "scatter": KeyReuseSignature(Sink(2), Forward(0, 0)),
    "slice": _slice,
    "concatenate": _concatenate,
    "optimization_barrier": _barrier,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "remat2": _checkpoint,
    **dict.fromkeys(("jit", "closed_call", "call", "custom_jvp_call", "custom_vjp_call"), _call),
}
key_reuse_signatures: dict[Primitive, Any] = {
    **{primitive: _BY_NAME[name] for name, primitive in (primitives | RANDOM).items() if name in _BY_NAME},
    consume_p: _BY_NAME["consume"],
    assert_consumed_value_p: _PASSED,
}


def key_reuse_signature_from_eqn(eqn: JaxprEqn, keys: set[Var]) -> KeyReuseSignature:
    """The signature of an equation, of whose variables these are keys."""
    found = key_reuse_signatures.get(eqn.primitive) or _BY_NAME.get(eqn.primitive.name, _unknown)
    return found if isinstance(found, KeyReuseSignature) else found(eqn, keys)


# --- signatures of jaxprs ---------------------------------------------------------------------------------------------


class _Consumption:
    """Which keys are consumed, by the variable from which they are passed on."""

    def __init__(self, keys: set[Var]) -> None:
        self.keys = keys
        self._consumed: dict[Var, Mask] = {}
        self._origin: dict[Var, Atom] = {}

    def origin(self, atom: Atom) -> Atom:
        while isinstance(atom, Var) and atom in self._origin:
            atom = self._origin[atom]
        return atom

    def of(self, atom: Atom) -> Mask:
        found = self.origin(atom)
        return self._consumed.get(found, False) if isinstance(found, Var) else False

    def apply(self, eqn: JaxprEqn, signature: KeyReuseSignature) -> None:
        """What an equation does, which must not consume what is consumed."""
        forwarded: set[int] = set()
        for source, result in signature.forwards:
            self._origin[eqn.outvars[result]] = eqn.invars[source]
            forwarded.add(result)
        for sink in sorted(signature.sinks, key=lambda s: s.idx):
            self._consume(eqn, sink)
        fresh = {source.idx for source in signature.sources}
        for k, v in enumerate(eqn.outvars):
            if k not in forwarded:
                self._consumed[v] = k not in fresh

    def _consume(self, eqn: JaxprEqn, sink: Sink) -> None:
        operand = eqn.invars[sink.idx]
        origin = self.origin(operand)
        if operand not in self.keys or not isinstance(origin, Var):
            return
        before, mask = self._consumed.get(origin, False), sink.mask
        if np.ndim(before) and np.ndim(mask) and np.shape(before) != np.shape(mask):
            before, mask = np.any(before), np.any(mask)
        if np.any(np.logical_and(before, mask)):
            raise KeyReuseError(f"In {eqn.primitive}, argument {sink.idx} is already consumed.")
        self._consumed[origin] = np.logical_or(before, mask)


def jaxpr_type_signature(jaxpr: Jaxpr, known: Iterable[Var] = ()) -> KeyReuseSignature:
    """The signature of a jaxpr.

    Args:
        jaxpr: with its constants after its inputs, in the numbers of operands.
        known: inputs that are keys. What is used as a key needs not be named.

    Raises:
        KeyReuseError: a key is consumed twice.
        AssertionError: `assert_consumed` or `assert_unconsumed` expects something else.
    """
    keys = key_variables(jaxpr, known)
    state = _Consumption(keys)
    for eqn in jaxpr.eqns:
        signature = key_reuse_signature_from_eqn(eqn, keys)
        if eqn.primitive is assert_consumed_value_p:
            _check_expected(eqn, state.of(eqn.invars[0]))
        state.apply(eqn, signature)
    inputs = [*jaxpr.invars, *jaxpr.constvars]
    uses: list[Any] = [Sink(k, state.of(v)) for k, v in enumerate(inputs) if v in keys and np.any(state.of(v))]
    for k, v in enumerate(jaxpr.outvars):
        origin = state.origin(v)
        if v in keys and origin in inputs:
            uses.append(Forward(inputs.index(origin), k))
        elif v in keys and not np.any(state.of(v)):
            uses.append(Source(k))
    return KeyReuseSignature(*uses)


def _check_expected(eqn: JaxprEqn, consumed: Mask) -> None:
    expected = eqn.params["value"].val
    if not np.all(consumed == np.asarray(expected)):
        raise AssertionError(f"Expected the consumption {expected} of a key, but it is {consumed}, in {eqn}.")


def traced(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: Any = None
) -> tuple[ClosedJaxpr, list[Var], list[Any]]:
    """The jaxpr of a function, those of its inputs that are keys, and the values of its inputs."""
    closed, _, _ = closed_jaxpr(fun, tuple(args), kwargs or {})
    whole = pytrees.flatten((tuple(args), kwargs or {}), _is_key)[0]
    known = [v for x, v in zip(whole, closed.jaxpr.invars, strict=True) if _is_key(x)]
    return closed, known, whole


def _is_key(x: Any) -> bool:
    return isinstance(getattr(x, "dtype", None), KeyType)


def function_type_signature(fun: Callable[..., Any], *args: Any) -> KeyReuseSignature:
    """The signature of a function, whose operands are the leaves of its arguments."""
    closed, known, _ = traced(fun, args)
    return jaxpr_type_signature(closed.jaxpr, known)


def check_key_reuse_jaxpr(jaxpr: Jaxpr) -> None:
    """An error if a jaxpr consumes a key twice.

    Raises:
        KeyReuseError: it does.
    """
    jaxpr_type_signature(jaxpr)


def check_key_reuse(fun: Callable[..., Any], /, *args: Any) -> None:
    """An error if a function consumes a key twice; it is traced and not run.

    Raises:
        KeyReuseError: it does.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> from jax.experimental.key_reuse import check_key_reuse
        >>> check_key_reuse(lambda key: jax.random.bits(key), jax.random.key(0))
    """
    function_type_signature(fun, *args)


# --- compiled functions -----------------------------------------------------------------------------------------------


def checking(call: Callable[..., Any]) -> Callable[..., Any]:
    """The method by which a compiled function is called in general, which looks at its keys while the option
    `debug_key_reuse` is set: at those among its arguments, and those that it closes over."""

    def general(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_checking() or is_recording():
            return call(self, args, kwargs)
        positional, named, static = self._split(args, kwargs)
        closed, known, values = traced(self._with_static(len(args), static), positional, named)
        signature = jaxpr_type_signature(closed.jaxpr, known)
        operands = [*values, *closed.consts]
        for sink in signature.sinks:
            mark_consumed(operands[sink.idx], sink.mask, "jit-compiled function", sink.idx)
        result = call(self, args, kwargs)
        results = pytrees.flatten(result, _is_key)[0]
        fresh = {source.idx for source in signature.sources}
        origins = {forward.out_idx: forward.in_idx for forward in signature.forwards}
        for k, x in enumerate(results):
            if isinstance(x, KeyArray):
                mark(x, consumption(operands[origins[k]]) if k in origins else k not in fresh)
        return result

    return general
