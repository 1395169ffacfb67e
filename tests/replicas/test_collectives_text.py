"""Collective operations and transfers as HLO text: JAX's programs on several devices, the forms of groups, and what is
begun at one place and waited for at another. What is printed is read by XLA's parser."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support import xla_oracle
from tests.support.device_programs import DEVICES, GOLDEN, partitioned_programs, programs
from tinyxla import xla
from tinyxla.api.module_call import Module as RunnableModule
from tinyxla.errors import DeadlockError, HloSyntaxError
from tinyxla.hlo import Module
from tinyxla.text import parse_hlo, print_module

BACKENDS = ("interpreter", "numba")
JAX: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def module_of(body: str) -> Any:
    """A module of two parameters, which prints as text that reads as the same, here and in XLA."""
    parameters = "x = f32[2,4] parameter(0)  y = f32[2,4] parameter(1)"
    module = parse_hlo(f"HloModule test\n\n{ADD}\n\nENTRY main {{\n{parameters}\n{body}\n}}\n")
    check_round_trip(module)
    return module


def check_round_trip(module: Any) -> None:
    text = print_module(module)
    assert print_module(parse_hlo(text)) == text
    xla_oracle.parse(text)


# --- JAX's programs ---------------------------------------------------------------------------------------------------


def test_golden_programs_are_all_there() -> None:
    assert set(JAX["programs"]) == set(programs())
    assert set(JAX["partitioned"]) == set(partitioned_programs())


@pytest.mark.parametrize("name", JAX["programs"])
def test_jax_program_on_four_devices_gives_what_jax_computes(name: str) -> None:
    program = JAX["programs"][name]
    check_round_trip(parse_hlo(program["text"]))
    module = parse_hlo(program["optimized"])
    check_round_trip(module)
    devices = [[x] for x in np.split(np.float32(JAX["operand"]), DEVICES)]
    for backend in BACKENDS:
        found = module.execute_replicated(devices, replica_count=1, partition_count=DEVICES, backend=backend)
        together = np.concatenate([np.asarray(x) for x in found])
        np.testing.assert_allclose(together, np.float32(program["result"]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", JAX["partitioned"])
def test_jax_program_divided_by_the_partitioner_gives_what_jax_computes(name: str) -> None:
    """Its collective operations are the partitioner's own, whose groups are axes of a mesh."""
    program = JAX["partitioned"][name]
    module = parse_hlo(program["optimized"])
    check_round_trip(module)
    devices = [[np.float32(x)] for x in program["operands"]]
    for backend in BACKENDS:
        found = module.execute_replicated(devices, replica_count=1, partition_count=DEVICES, backend=backend)
        for x, expected in zip(found, program["results"], strict=True):
            np.testing.assert_allclose(np.asarray(x), np.float32(expected), rtol=1e-5, atol=1e-5)


# --- groups and axes --------------------------------------------------------------------------------------------------

GROUPS = {
    "": "{}",
    ", replica_groups={}": "{}",
    ", replica_groups={{0,2},{1,3}}": "{{0,2},{1,3}}",
    ", replica_groups={{0, 1, 2}, {3}}": "{{0,1,2},{3}}",
    ", replica_groups=[2,4]<=[8]": "{{0,1,2,3},{4,5,6,7}}",
    ", replica_groups=[2,4]<=[4,2]T(1,0)": "{{0,2,4,6},{1,3,5,7}}",
    ", replica_groups=[4,2]<=[2,2,2]T(2,0,1)": "{{0,2},{4,6},{1,3},{5,7}}",
    ", replica_groups=[1,1]<=[1], constrain_layout=true": "{{0}}",
    ", replica_groups=mesh['x'=2,'y'=4] {'x'}": "{{0,4},{1,5},{2,6},{3,7}}",
    ", replica_groups=mesh['x'=2,'y'=4] {'y'}, constrain_layout=true": "{{0,1,2,3},{4,5,6,7}}",
    ", replica_groups=mesh['x'=2,'y'=4]{'y','x'}": "{{0,4,1,5,2,6,3,7}}",
    ", replica_groups=mesh['x'=2, 'y'=2, 'z'=2] {'z', 'x'}": "{{0,4,1,5},{2,6,3,7}}",
    ", replica_groups=mesh['x'=1,'y'=3] {'x'}": "{{0},{1},{2}}",
    ", replica_groups=mesh['x'=8] {'x':(1)4}": "{{0,2,4,6},{1,3,5,7}}",
    ", replica_groups=mesh['x'=8] {'x':(4)2,'x':(1)2}": "{{0,4,1,5},{2,6,3,7}}",
    ", replica_groups=mesh['x'=2,'y'=4] {'y':(2)2,'x'}": "{{0,4,1,5},{2,6,3,7}}",
    ", replica_groups=mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'x'}": "{{0,1,2,3},{4,5,6,7}}",
    ", replica_groups=mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}": "{{3,2},{1,0}}",
}


@pytest.mark.parametrize("written", GROUPS)
def test_replica_groups_of_every_form(written: str) -> None:
    module = module_of(f"ROOT z = f32[2,4] all-reduce(x){written}, to_apply=add")
    assert f"replica_groups={GROUPS[written]}" in print_module(module)


@pytest.mark.parametrize(
    "written",
    [
        "[2,4]<=[4]",
        "[2,2,2]<=[8]",
        "[2,4]<=[4,2]T(1,1)",
        "[2,4]<=[8]T(1,0)",
        "{0,1}",
        "{{0,a}}",
        "[2,4]",
        "[2000000,4000000]<=[8]",
        "mesh['x'=8]",
        "mesh['x'=8] {}",
        "mesh[] {}",
        "mesh[x=8] {'x'}",
        "mesh['x'=8] {'y'}",
        "mesh['x'=8] {'x','x'}",
        "mesh['x'=8] {'x':(1)4,'x':(2)2}",
        "mesh['x'=8] {'x':(3)2}",
        "mesh['x'=8] {'x':(0)2}",
        "mesh['x'=0] {'x'}",
        "mesh['x'=2,'x'=4] {'x'}",
        "mesh['x'=8], device_ids=(1,2) {'x'}",
        "mesh['x'=8], device_ids=([4]) {'x'}",
        "mesh['x'=8], device_ids=([2,4]T(1,1)) {'x'}",
        "mesh['x'=999999999,'y'=999999999] {'x'}",
    ],
)
def test_groups_that_are_none_are_a_syntax_error(written: str) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        module_of(f"ROOT z = f32[2,4] all-reduce(x), replica_groups={written}, to_apply=add")
    assert "replica_groups" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("f32[2,4] all-reduce(x), replica_groups={{0,0}}, to_apply=add", "at most once"),
        ("f32[2,4] all-reduce(x), use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add", "channel_id"),
        ("f32[2,4] all-reduce(x), replica_groups={}", "to_apply"),
        ("f32[3,4] all-gather(x), dimensions={0}, replica_groups={}", "but the shape here is"),
        ("f32[4,4] all-gather(x), dimensions={2}, replica_groups={}", "from 0 to 1"),
        ("f32[4,4] all-gather(x), dimensions={0}, replica_groups={{0,1,2}}", "shard_count must be 3"),
        ("f32[0,4] reduce-scatter(x), dimensions={0}, to_apply=add", "but the shape here is"),
        ("f32[4,4] reduce-scatter(x), dimensions={0}, to_apply=add", "shard_count"),
        ("f32[2,4] collective-permute(x), source_target_pairs={{0,1},{2,1}}", "targets"),
        ("f32[2,4] collective-permute(x), source_target_pairs={{0,1,2}}", "expected pairs"),
        ("f32[2,4] collective-permute(x)", "source_target_pairs"),
        ("s32[] replica-id()", "u32[]"),
    ],
)
def test_wrong_collectives_are_a_syntax_error(line: str, says: str) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        module_of(f"ROOT z = {line}")
    assert says in str(caught.value)


def test_names_of_axes_are_kept() -> None:
    jaxpr = tx.jit(lambda x: tx.vmap(lambda y: tx.lax.psum(y, "rows"), axis_name="rows")(x)).lower(X).as_text()
    assert "axis_name" not in jaxpr  # it is resolved there
    body = 'ROOT z = f32[2,4] all-reduce(x), to_apply=add, replica_groups={}, frontend_attributes={axis_name="rows"}'
    module: Module = module_of(body)
    assert module.entry.root.attributes.axis_name == "rows"


def test_control_predecessors_are_printed_under_their_new_names() -> None:
    """`a` and `b` are names in the computation `add`, too."""
    body = """
      a = f32[2,4] negate(x)
      b = f32[2,4] all-reduce(y), replica_groups={}, to_apply=add, control-predecessors={%a, x}
      ROOT z = f32[2,4] add(a, b)
    """
    assert "control-predecessors={a.1, x}" in print_module(module_of(body))


# --- what is begun and waited for -------------------------------------------------------------------------------------

PAIR = "(f32[2,4], f32[2,4])"
STAGES = {
    "all-reduce": "s = f32[2,4] all-reduce-start(x), to_apply=add, replica_groups={}\n"
    "ROOT z = f32[2,4] all-reduce-done(s)",
    "all-reduce of two": f"s = {PAIR} all-reduce-start(x, x), to_apply=add, replica_groups={{}}\n"
    f"d = {PAIR} all-reduce-done(s)\nROOT z = f32[2,4] get-tuple-element(d), index=1",
    "all-gather": "s = (f32[2,4], f32[4,4]) all-gather-start(x), dimensions={0}, replica_groups={}\n"
    "ROOT z = f32[4,4] all-gather-done(s)",
    "all-gather of two": f"s = ({PAIR}, (f32[4,4], f32[4,4])) all-gather-start(y, x), dimensions={{0}}, "
    "replica_groups={}\nd = (f32[4,4], f32[4,4]) all-gather-done(s)\nROOT z = f32[4,4] get-tuple-element(d), index=1",
    "collective-permute": f"s = {PAIR} collective-permute-start(x), source_target_pairs={{{{0,1}},{{1,0}}}}\n"
    "ROOT z = f32[2,4] collective-permute-done(s)",
    "collective-permute with a state": "s = (f32[2,4], f32[2,4], u32[], u32[]) collective-permute-start(x), "
    "source_target_pairs={{0,1},{1,0}}\nROOT z = f32[2,4] collective-permute-done(s)",
    "reduce-scatter": "s = ((f32[2,4]), f32[1,4], u32[]) reduce-scatter-start(x), dimensions={0}, to_apply=add\n"
    "ROOT z = f32[1,4] reduce-scatter-done(s)",
    "all-to-all": "s = ((f32[2,4]), f32[2,4], u32[]) all-to-all-start(x), dimensions={0}, replica_groups={}\n"
    "ROOT z = f32[2,4] all-to-all-done(s)",
}
AT_ONCE = {
    "all-reduce": [2 * X + 10, 2 * X + 10],
    "all-gather": [np.concatenate([X, X + 10])] * 2,
    "collective-permute": [X + 10, X],
    "reduce-scatter": [(2 * X + 10)[:1], (2 * X + 10)[1:]],
    "all-to-all": [np.stack([X[0], X[0] + 10]), np.stack([X[1], X[1] + 10])],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", STAGES)
def test_collective_begun_and_waited_for(name: str, backend: str) -> None:
    module: RunnableModule = module_of(STAGES[name])
    found = module.execute_replicated([[X, X], [X + 10, X]], backend=backend)
    for x, expected in zip(found, AT_ONCE[name.split(" ")[0]], strict=True):
        np.testing.assert_array_equal(np.asarray(x), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("begun", [False, True])
def test_collective_permute_of_slices_in_place(begun: bool, backend: str) -> None:
    opcode, shape = "collective-permute", "f32[2,4]"
    fields, end = "source_target_pairs={{0,1},{1,0}}, slice_sizes={{1,2}}", ""
    if begun:
        opcode, shape = "collective-permute-start", "(f32[2,4], f32[2,4], u32[], u32[])"
        end = "\nROOT d = f32[2,4] collective-permute-done(z)"
    body = f"""
      i = s32[] constant(0)
      one = s32[] constant(1)
      from = (s32[], s32[]) tuple(i, one)
      to = (s32[], s32[]) tuple(one, i)
      {"" if begun else "ROOT "}z = {shape} {opcode}(x, y, from, to), {fields}{end}
    """
    found = module_of(body).execute_replicated([[X, -X], [X + 10, -X]], backend=backend)
    for x, other in zip(found, (X + 10, X), strict=True):
        expected = -X
        expected[1, :2] = other[0, 1:3]
        np.testing.assert_array_equal(np.asarray(x), expected)


def test_shards_of_arrays_without_elements() -> None:
    body = "e = f32[0,4] slice(x), slice={[0:0], [0:4]}\nROOT z = f32[0,4] all-gather(e), dimensions={0}"
    assert module_of(f"{body}, replica_groups={{}}").entry.root.attributes.shard_count == 1
    assert module_of(f"{body}, replica_groups={{{{0,1}}}}").entry.root.attributes.shard_count == 2


# --- transfers --------------------------------------------------------------------------------------------------------

CONTEXT = "(f32[2,4], u32[], token[])"
PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_send_and_recv_between_replicas(backend: str) -> None:
    body = f"""
      t = token[] after-all()
      r = {CONTEXT} recv(t), channel_id=1, {PAIRS}
      s = {CONTEXT} send(x, t), channel_id=1, {PAIRS}
      sent = token[] send-done(s), channel_id=1
      got = (f32[2,4], token[]) recv-done(r), channel_id=1, {PAIRS}
      ROOT z = f32[2,4] get-tuple-element(got), index=0
    """
    found = module_of(body).execute_replicated([[X, X], [X + 10, X]], backend=backend)
    np.testing.assert_array_equal(np.asarray(found[0]), X + 10)
    np.testing.assert_array_equal(np.asarray(found[1]), X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_host_transfers(backend: str) -> None:
    body = f"""
      t = token[] after-all()
      s = {CONTEXT} send(x, t), channel_id=1, is_host_transfer=true
      sent = token[] send-done(s), channel_id=1, is_host_transfer=true
      r = {CONTEXT} recv(sent), channel_id=2, is_host_transfer=true
      got = (f32[2,4], token[]) recv-done(r), channel_id=2, is_host_transfer=true
      ROOT z = f32[2,4] get-tuple-element(got), index=0
    """
    xla.transfer_to_channel(2, -X)
    found = module_of(body).execute_replicated([[X, X]], backend=backend)
    np.testing.assert_array_equal(np.asarray(found[0]), -X)
    np.testing.assert_array_equal(xla.transfer_from_channel(1), X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeed_and_outfeed(backend: str) -> None:
    body = """
      t = token[] after-all()
      first = ((f32[2,4], s32[]), token[]) infeed(t), infeed_config="first"
      data = (f32[2,4], s32[]) get-tuple-element(first), index=0
      a = f32[2,4] get-tuple-element(data), index=0
      b = s32[] get-tuple-element(data), index=1
      u = token[] get-tuple-element(first), index=1
      second = (f32[2,4], token[]) infeed(u)
      c = f32[2,4] get-tuple-element(second), index=0
      v = token[] get-tuple-element(second), index=1
      none = ((), token[]) infeed(v)
      w = token[] get-tuple-element(none), index=1
      out = (f32[2,4], s32[]) tuple(c, b)
      sent = token[] outfeed(out, w), outfeed_shape=(f32[2,4]{0,1}, s32[]), outfeed_config="c"
      last = token[] outfeed(x, sent)
      ROOT z = f32[2,4] add(a, c)
    """
    module = module_of(body)
    assert "outfeed_shape=(f32[2,4]{0,1}, s32[])" in print_module(module)
    xla.transfer_to_infeed((X, np.int32(7)))
    xla.transfer_to_infeed(X + 10)
    (found,) = module.execute_replicated([[X, X]], backend=backend)
    np.testing.assert_array_equal(np.asarray(found), 2 * X + 10)
    data, number = xla.transfer_from_outfeed()
    np.testing.assert_array_equal(data, X + 10)
    assert number == 7
    np.testing.assert_array_equal(xla.transfer_from_outfeed(), X)


def test_deadlock_of_a_text_without_lines_names_instructions() -> None:
    body = f"""
      t = token[] after-all()
      r = {CONTEXT} recv(t), channel_id=1, {PAIRS}
      early = (f32[2,4], token[]) recv-done(r), channel_id=1, {PAIRS}
      late = {CONTEXT} send(x, t), channel_id=1, {PAIRS}
      ROOT z = f32[2,4] get-tuple-element(early), index=0
    """
    with pytest.raises(DeadlockError) as caught:
        module_of(body).execute_replicated([[X, X], [X + 10, X]])
    said = str(caught.value)
    assert "replica 0 waits in recv-done on channel 1 for replica 1 to send, at the instruction early; " in said
    assert "the other end is at the instruction late, of replica 1" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("(((f32[2]), f32[]), token[]) infeed(t)", "nested"),
        ("(f32[2], f32[]) infeed(t)", "the operands give"),
        ("f32[2] infeed(t)", "must be the tuple"),
        ("token[] outfeed(x)", "expected 2"),
        ("token[] outfeed(x, t), outfeed_shape=f32[3]", "outfeed_shape"),
        ("(f32[2,4], u32[], token[]) send(x, t)", "channel_id"),
        ("(f32[2,4], u32[], token[]) send(x, y), channel_id=1", "token"),
        ("(f32[2,4], token[]) recv-done(x), channel_id=1", ""),
        ("token[] send-done(x), channel_id=1", "tuple"),
    ],
)
def test_wrong_transfers_are_a_syntax_error(line: str, says: str) -> None:
    with pytest.raises(HloSyntaxError) as caught:
        module_of(f"t = token[] after-all()\nROOT z = {line}")
    assert says in str(caught.value)
