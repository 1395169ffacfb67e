"""Portable artifacts, MLIR bytecode of VHLO, give the modules that JAX reads out of them, at all versions; damaged ones
give an error with the offset."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
from tests.stablehlo.test_stablehlo_programs import PROGRAMS, SYMBOLIC, compare, function_of
from tests.support import xla_oracle
from tinyxla import jit, stablehlo
from tinyxla.errors import ArgumentError, BytecodeError, TinyxlaError
from tinyxla.stablehlo import bytecode
from tinyxla.stablehlo.bytecode.flatbuffer import Buffer
from tinyxla.text.mlir.assembly import parse_module
from tinyxla.text.mlir.ir import DenseAttr, ModuleOp, walk
from tinyxla.text.mlir.printer import print_module_op

jax = pytest.importorskip("jax")
_jax = pytest.importorskip("jaxlib._jax")
jaxlib_ir = pytest.importorskip("jaxlib.mlir.ir")
from jax._src.interpreters import mlir as jax_mlir  # noqa: E402
from jaxlib.mlir.dialects import stablehlo as jaxlib_stablehlo  # noqa: E402

CURRENT = jaxlib_stablehlo.get_current_version()
VERSIONS = [f"0.{k}.0" for k in range(9, 21)] + [f"1.{k}.0" for k in range(int(CURRENT.split(".")[1]) + 1)]

# ruff: noqa: E501
# Operations that JAX's programs do not have.
OPERATIONS = {
    "collectives": """
      func.func public @main(%x: tensor<4x2xf32>) -> (tensor<8x2xf32>, tensor<4x2xf32>, tensor<2x2xf32>) {
        %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids}> : (tensor<4x2xf32>) -> tensor<8x2xf32>
        %1 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) : (tensor<4x2xf32>) -> tensor<4x2xf32>
        %2 = "stablehlo.reduce_scatter"(%1) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.maximum %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) : (tensor<4x2xf32>) -> tensor<2x2xf32>
        %3 = "stablehlo.all_to_all"(%1) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x2xf32>) -> tensor<4x2xf32>
        %4 = "stablehlo.collective_permute"(%3) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 7, type = 0>}> : (tensor<4x2xf32>) -> tensor<4x2xf32>
        %5 = stablehlo.replica_id : tensor<ui32>
        return %0, %4, %2 : tensor<8x2xf32>, tensor<4x2xf32>, tensor<2x2xf32>
      }""",
    "transfers": """
      func.func public @main(%x: tensor<2xf32>, %t: !stablehlo.token) -> !stablehlo.token {
        %0 = "stablehlo.send"(%x, %t) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true}> : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
        %1:2 = "stablehlo.recv"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>, is_host_transfer = true}> : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
        %2:2 = "stablehlo.infeed"(%1#1) <{infeed_config = "a", layout = [[0]]}> : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
        %3 = "stablehlo.outfeed"(%2#0, %2#1) <{outfeed_config = ""}> : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
        %4 = stablehlo.after_all %3, %0 : !stablehlo.token
        return %4 : !stablehlo.token
      }""",
    "custom calls": r"""
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = "stablehlo.custom_call"(%x) <{call_target_name = "a", api_version = 4 : i32, backend_config = {b = 1 : i32, c = "d", e = [2.0 : f32, true], f = 0x7FC00001 : f32, g = dense<[1, 2]> : tensor<2xi64>, h = -3 : i8, i = 200 : ui8}, has_side_effect = true, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]}> : (tensor<2xf32>) -> tensor<2xf32>
        %1 = "stablehlo.custom_call"(%0) <{call_target_name = "b", api_version = 2 : i32, backend_config = "x\00y\FF", called_computations = [@f]}> {mhlo.frontend_attributes = {k = "v"}} : (tensor<2xf32>) -> tensor<2xf32>
        %2 = call @f(%1) : (tensor<2xf32>) -> tensor<2xf32>
        return %2 : tensor<2xf32>
      }
      func.func private @f(%x: tensor<2xf32> {a.b = "c"}) -> tensor<2xf32> {
        return %x : tensor<2xf32>
      }""",
    "composite": """
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.composite "a.b" %x {composite_attributes = {n = 3 : i64, t = dense<1.0> : tensor<2xf32>}, decomposition = @f, version = 2 : i32} : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32>
      }
      func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {
        return %x : tensor<2xf32>
      }""",
    "dynamic sizes": """
      func.func public @main(%x: tensor<?x3xf32>, %n: tensor<2xi32>, %w: tensor<1x1x2x2xf32>, %p: tensor<2x2xi32>) -> tensor<?x?xf32> {
        %0 = stablehlo.dynamic_reshape %x, %n : (tensor<?x3xf32>, tensor<2xi32>) -> tensor<?x?xf32>
        %1 = stablehlo.dynamic_iota %n, dim = 1 : (tensor<2xi32>) -> tensor<?x?xf32>
        %2 = "stablehlo.dynamic_broadcast_in_dim"(%x, %n) <{broadcast_dimensions = array<i64: 0, 1>, known_expanding_dimensions = array<i64: 0>, known_nonexpanding_dimensions = array<i64: 1>}> : (tensor<?x3xf32>, tensor<2xi32>) -> tensor<?x?xf32>
        %3 = stablehlo.dynamic_pad %x, %c, %n, %n, %n : (tensor<?x3xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
        %4 = stablehlo.real_dynamic_slice %x, %n, %n, %n : (tensor<?x3xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
        %5 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
        %6 = "stablehlo.dynamic_gather"(%x, %i, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true}> : (tensor<?x3xf32>, tensor<4x1xi32>, tensor<2xi32>) -> tensor<4x?xf32>
        %7 = "stablehlo.dynamic_conv"(%y, %w, %p) <{dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, window_strides = array<i64: 2, 1>}> : (tensor<?x1x?x?xf32>, tensor<1x1x2x2xf32>, tensor<2x2xi32>) -> tensor<?x1x?x?xf32>
        %8 = stablehlo.set_dimension_size %z, %5, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
        return %0 : tensor<?x?xf32>
      }""".replace("%c,", "%k,").replace(
        "{\n        %0",
        '{\n        %k = stablehlo.constant dense<1.0> : tensor<f32>\n        %i = stablehlo.constant dense<0> : tensor<4x1xi32>\n        %z = stablehlo.constant dense<0.0> : tensor<4xf32>\n        %y = "stablehlo.dynamic_reshape"(%x, %m) : (tensor<?x3xf32>, tensor<4xi32>) -> tensor<?x1x?x?xf32>\n        %0',
        1,
    ).replace("%k = ", "%m = stablehlo.constant dense<1> : tensor<4xi32>\n        %k = ", 1),
    "windows": """
      func.func public @main(%x: tensor<1x4x4x2xf32>, %w: tensor<2x2x1x2xf32>, %u: tensor<1x2x2x2xf32>, %i: tensor<f32>) -> tensor<1x4x4x2xf32> {
        %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[1, 0], [0, 1]], lhs_dilate = [1, 2], rhs_dilate = [2, 1], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGHEST>]} : (tensor<1x4x4x2xf32>, tensor<2x2x1x2xf32>) -> tensor<1x2x7x2xf32>
        %1 = "stablehlo.reduce_window"(%x, %i) <{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>, base_dilations = array<i64: 1, 2, 1, 1>, window_dilations = array<i64: 1, 1, 2, 1>, padding = dense<[[0, 0], [1, 1], [0, 2], [0, 0]]> : tensor<4x2xi64>}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x4x2x2xf32>
        %2 = "stablehlo.select_and_scatter"(%x, %u, %i) <{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.compare GE, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %s : tensor<i1>
        }, {
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) : (tensor<1x4x4x2xf32>, tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x4x4x2xf32>
        return %2 : tensor<1x4x4x2xf32>
      }""",
    "others": """
      func.func public @main(%x: tensor<2x2xf32>, %i: tensor<2xi32>, %s: tensor<2xui64>) -> (tuple<tensor<2x2xf32>, tensor<2x2xf32>>, tensor<2x2xf32>) {
        %0 = stablehlo.batch_norm_inference %x, %v, %v, %v, %v {epsilon = 1.0e-05 : f32, feature_index = 1 : i64} : none
        %1 = stablehlo.cholesky %x, lower = true : tensor<2x2xf32>
        %2 = "stablehlo.triangular_solve"(%1, %x) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose ADJOINT>, unit_diagonal = false}> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        %3 = "stablehlo.torch_index_select"(%x, %i) <{dim = 1 : i64, batch_dims = 0 : i64}> : (tensor<2x2xf32>, tensor<2xi32>) -> tensor<2x2xf32>
        %4:2 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
        %5 = stablehlo.tuple %2, %3 : tuple<tensor<2x2xf32>, tensor<2x2xf32>>
        %6 = stablehlo.reduce_precision %x, format = e5m10 : tensor<2x2xf32>
        %7 = "stablehlo.map"(%6) <{dimensions = array<i64: 0, 1>}> ({
          ^bb0(%a: tensor<f32>):
            %8 = stablehlo.negate %a : tensor<f32>
            stablehlo.return %8 : tensor<f32>
        }) : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %9 = stablehlo.dot_general %x, %7, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        %10:2 = "stablehlo.sort"(%x, %9) <{dimension = 0 : i64, is_stable = true}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
            %11 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %11 : tensor<i1>
        }) : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
        return %5, %10#1 : tuple<tensor<2x2xf32>, tensor<2x2xf32>>, tensor<2x2xf32>
      }""".replace(
        "%0 = stablehlo.batch_norm_inference %x, %v, %v, %v, %v {epsilon = 1.0e-05 : f32, feature_index = 1 : i64} : none",
        '%v = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>\n        %0 = "stablehlo.batch_norm_inference"(%x, %v, %v, %v, %v) <{epsilon = 1.0e-05 : f32, feature_index = 1 : i64}> : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2xf32>',
    ),
    "more": """
      func.func public @main(%x: tensor<2x2xf32>, %v: tensor<2xf32>, %z: tensor<4xcomplex<f32>>, %f: tensor<f32>) -> tensor<2x2xf32> {
        %0:3 = "stablehlo.batch_norm_training"(%x, %v, %v) <{epsilon = 1.0e-05 : f32, feature_index = 1 : i64}> : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
        %1:3 = "stablehlo.batch_norm_grad"(%x, %v, %v, %v, %x) <{epsilon = 2.0 : f32, feature_index = 0 : i64}> : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
        %2 = stablehlo.fft %z, type = IFFT, length = [4] : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
        %s = stablehlo.constant dense<2> : tensor<2xi64>
        %3 = stablehlo.rng %f, %f, %s, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x2xf32>
        %4 = stablehlo.dot %x, %3, precision = [HIGH, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        %5 = stablehlo.broadcast %v, sizes = [3, 1] : (tensor<2xf32>) -> tensor<3x1x2xf32>
        %6 = "stablehlo.collective_broadcast"(%4) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %7 = stablehlo.tuple %6, %v : tuple<tensor<2x2xf32>, tensor<2xf32>>
        %8 = stablehlo.get_tuple_element %7[1] : (tuple<tensor<2x2xf32>, tensor<2xf32>>) -> tensor<2xf32>
        %9:2 = stablehlo.optimization_barrier %8, %4 : tensor<2xf32>, tensor<2x2xf32>
        %10 = stablehlo.create_token : !stablehlo.token
        %11 = stablehlo.partition_id : tensor<ui32>
        %12 = stablehlo.compare NE, %x, %4 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xi1>
        %13 = stablehlo.iota dim = 1 : tensor<2x2xf32>
        %14 = stablehlo.concatenate %13, %x, dim = 1 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x4xf32>
        %15 = stablehlo.reverse %14, dims = [1, 0] : tensor<2x4xf32>
        %16 = stablehlo.pad %15, %f, low = [1, -1], high = [0, 2], interior = [0, 1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<3x8xf32>
        %17 = stablehlo.slice %16 [0:2, 1:7:3] : (tensor<3x8xf32>) -> tensor<2x2xf32>
        %18 = stablehlo.select %12, %17, %x : tensor<2x2xi1>, tensor<2x2xf32>
        %19 = "stablehlo.exponential"(%18) <{result_accuracy = #stablehlo.result_accuracy<atol = 0.0, rtol = 1.0, ulps = 10, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}> : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %20 = stablehlo.transpose %18, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %21 = stablehlo.dynamic_slice %20, %i, %i, sizes = [2, 2] : (tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
        %22 = "stablehlo.case"(%i) ({
          stablehlo.return %21 : tensor<2x2xf32>
        }, {
          %23 = stablehlo.sine %21 : tensor<2x2xf32>
          stablehlo.return %23 : tensor<2x2xf32>
        }) : (tensor<i32>) -> tensor<2x2xf32>
        return %22 : tensor<2x2xf32>
      }""".replace("%s = ", "%i = stablehlo.constant dense<0> : tensor<i32>\n        %s = ", 1),
    "algorithm of a product": """
      func.func public @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
        %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        return %0 : tensor<2x2xf32>
      }""",
    "batches of gathers": """
      func.func public @main(%x: tensor<3x4xf32>, %i: tensor<3x2x1xi32>, %u: tensor<3x2xf32>) -> tensor<3x4xf32> {
        %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}> : (tensor<3x4xf32>, tensor<3x2x1xi32>) -> tensor<3x2xf32>
        %1 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, unique_indices = true}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            stablehlo.return %b : tensor<f32>
        }) : (tensor<3x4xf32>, tensor<3x2x1xi32>, tensor<3x2xf32>) -> tensor<3x4xf32>
        return %1 : tensor<3x4xf32>
      }""",
}  # fmt: skip


def serialized(module: Any, version: str = CURRENT, with_shardings: bool = False) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _jax.mlir.serialize_portable_artifact(module, version, with_shardings)


def artifact_of_text(text: str, version: str = CURRENT) -> bytes:
    return jaxlib_stablehlo.serialize_portable_artifact_str(text, version)


def canonical(text: str) -> str:
    """A module as jaxlib writes it in the generic form."""
    with jax_mlir.make_ir_context():
        return jaxlib_ir.Module.parse(text).operation.get_asm(print_generic_op_form=True)


def check_same_module(artifact: bytes) -> None:
    """Our module, written as text, is that which jaxlib reads."""
    with jax_mlir.make_ir_context():
        expected = str(_jax.mlir.deserialize_portable_artifact(artifact))
    assert canonical(print_module_op(bytecode.read(artifact))) == canonical(expected)


def lowered(name: str) -> Any:
    source, arguments = PROGRAMS[name]
    return jax.jit(function_of(source)).lower(*arguments).compiler_ir("stablehlo")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(every=2)
def test_artifact_is_the_module_that_jax_reads(name: str) -> None:
    check_same_module(serialized(lowered(name)))
    check_same_module(serialized(lowered(name), with_shardings=True))


SHARDED = """
module @m {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  sdy.mesh @other = <["x"=2], device_ids=[1, 0]>
  sdy.mesh @one = <[], device_ids=[3]>
  func.func public @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p2, {"y":(2)2}]>}, %y: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<mesh<["a"=2]>, [{"a"}p0, {?}]>}) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], replicated={"x", "y":(1)2}>}) {
    %0 = sdy.sharding_constraint %x <@mesh, [{}, {"x"}], unreduced={"y"}> : tensor<8x8xf32>
    %1 = stablehlo.custom_call @foo(%0) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>, sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, m]) {i=8, j=2, k=2, l=2, m=8} reduction={j, k} need_replication={l} permutation={m} blocked_propagation={i}, custom>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = stablehlo.add %1, %y {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}], unreduced={"y"}>]>} : tensor<8x8xf32>
    %3 = sdy.manual_computation(%2) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<4x8xf32>) {
      %4 = stablehlo.sine %a : tensor<4x8xf32>
      sdy.return %4 : tensor<4x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }
}"""


def test_artifact_with_shardings_is_the_module_that_jax_reads() -> None:
    with jax_mlir.make_ir_context():
        check_same_module(serialized(jaxlib_ir.Module.parse(SHARDED), with_shardings=True))
    assert canonical(print_module_op(parse_module(SHARDED))) == canonical(SHARDED)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(every=3)
def test_artifact_has_the_results_of_jax(name: str) -> None:
    source, arguments = PROGRAMS[name]
    program = stablehlo.parse(serialized(lowered(name), with_shardings=True))
    compare(program(*arguments), jax.jit(function_of(source))(*arguments))


@pytest.mark.parametrize("version", VERSIONS)
def test_artifacts_of_all_versions_are_read(version: str) -> None:
    written = 0
    for text in OPERATIONS.values():
        with contextlib.suppress(ValueError):  # what the version did not have
            artifact = artifact_of_text(text, version)
            written += 1
            check_same_module(artifact)
    assert written >= (len(OPERATIONS) if version == CURRENT else 5)
    check_same_module(serialized(lowered("control flow"), version))
    check_same_module(serialized(lowered("indexing"), version))


@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
def test_programs_of_jax_at_all_versions_are_read(version: str) -> None:
    for name in list(PROGRAMS)[VERSIONS.index(version) % 5 :: 5]:  # each at several versions
        try:
            artifact = serialized(lowered(name), version)
        except jax.errors.JaxRuntimeError:  # what the version did not have
            assert version.startswith("0"), name
            continue
        check_same_module(artifact)


# --- writing ----------------------------------------------------------------------------------------------------------


def check_written(artifact: bytes) -> None:
    """The module of an artifact, written again, is the same for jaxlib and for us."""
    written = bytecode.write(bytecode.read(artifact))
    with jax_mlir.make_ir_context():
        expected, found = (canonical(str(_jax.mlir.deserialize_portable_artifact(x))) for x in (artifact, written))
    assert found == expected
    assert canonical(print_module_op(bytecode.read(written))) == expected


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(every=4)
def test_written_artifact_is_the_module_for_jax(name: str) -> None:
    check_written(serialized(lowered(name)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_written_operations_are_the_module_for_jax(name: str) -> None:
    check_written(artifact_of_text(OPERATIONS[name]))


@pytest.mark.parametrize("name", OPERATIONS)
def test_artifact_of_text_is_the_module_for_jax(name: str) -> None:
    """The short forms of text leave out defaults, and the kinds of enumerations."""
    written = bytecode.write(parse_module(OPERATIONS[name]))
    with jax_mlir.make_ir_context():
        found = canonical(str(_jax.mlir.deserialize_portable_artifact(written)))
        expected = canonical(str(_jax.mlir.deserialize_portable_artifact(artifact_of_text(OPERATIONS[name]))))
    assert found == expected


def test_programs_of_the_library_are_written_for_jax() -> None:
    def train(w: Any, x: Any) -> Any:
        value, slope = tx.value_and_grad(lambda w: (tx.numpy.tanh(x @ w) ** 2).mean())(w)
        return value, w - 0.1 * slope

    w, x = np.eye(3, dtype=np.float32), np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    text = tx.jit(train).lower(w, x).as_text("stablehlo")
    data = stablehlo.parse(text).serialize()
    with jax_mlir.make_ir_context():
        again = str(_jax.mlir.deserialize_portable_artifact(data))
    assert canonical(again) == canonical(text)
    for found, expected in zip(stablehlo.parse(data)(w, x), tx.jit(train)(w, x), strict=True):
        np.testing.assert_array_equal(found, expected)


CHLO = {
    name: f"chlo.{name} %x : tensor<8xf32> -> tensor<8xf32>"
    for name in "acos asin asinh atanh cosh erf sinh tan".split()
}


@pytest.mark.parametrize("name", CHLO)
def test_functions_of_chlo_are_written_as_custom_calls_that_xla_knows(name: str) -> None:
    program = stablehlo.parse(
        f"func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{ %y = {CHLO[name]} return %y : tensor<8xf32> }}"
    )
    data = program.serialize()
    x = np.linspace(-0.9, 0.9, 8, dtype=np.float32)
    with jax_mlir.make_ir_context():
        text = str(_jax.mlir.deserialize_portable_artifact(data))
    (expected,) = xla_oracle.run_stablehlo(text, [x])
    np.testing.assert_allclose(program(x), expected, rtol=1e-6)
    np.testing.assert_allclose(stablehlo.parse(data)(x), expected, rtol=1e-6)


def test_top_k_is_written_as_a_custom_call_that_xla_knows() -> None:
    x = np.array([3.0, 1.0, 4.0, 1.5], np.float32)
    text = tx.jit(lambda x: tx.lax.top_k(x, 2)).lower(x).as_text("stablehlo")
    assert "chlo.top_k" in text
    data = stablehlo.parse(text).serialize()
    with jax_mlir.make_ir_context():
        found = xla_oracle.run_stablehlo(str(_jax.mlir.deserialize_portable_artifact(data)), [x])
    for results in (found, stablehlo.parse(data)(x)):
        np.testing.assert_array_equal(results[0], [4, 3])
        np.testing.assert_array_equal(results[1], [2, 0])


def test_what_has_no_portable_form_is_refused() -> None:
    text = "func.func @main(%x: tensor<f32>) -> tensor<f32> {{ {} return %y : tensor<f32> }}"
    with pytest.raises(ArgumentError, match=r"chlo.lgamma has no portable form"):
        stablehlo.parse(text.format("%y = chlo.lgamma %x : tensor<f32> -> tensor<f32>")).serialize()
    with pytest.raises(ArgumentError, match="'permutation' is missing"):
        stablehlo.parse(text.format('%y = "stablehlo.transpose"(%x) : (tensor<f32>) -> tensor<f32>')).serialize()
    with pytest.raises(ArgumentError, match="its attributes other have no portable form"):
        stablehlo.parse(text.format("%y = stablehlo.sine %x {other = 1 : i32} : tensor<f32>")).serialize()


# --- constants --------------------------------------------------------------------------------------------------------

TYPES = {
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"i{n}": np.dtype(getattr(ml_dtypes, f"int{n}")) for n in (2, 4)},
    **{f"ui{n}": np.dtype(getattr(ml_dtypes, f"uint{n}")) for n in (2, 4)},
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    **{
        f"f8{name.upper()}": np.dtype(getattr(ml_dtypes, f"float8_{name}"))
        for name in "e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu".split()
    },
}


def constants(artifact: bytes) -> list[Any]:
    module = bytecode.read(artifact)
    found = [x.attributes["value"] for x in walk(module.functions["main"].body) if x.name == "stablehlo.constant"]
    assert all(isinstance(x, DenseAttr) for x in found)
    return [x.value for x in found if isinstance(x, DenseAttr)]


def function_of_constants(*literals: str) -> str:
    lines = "\n".join(f"%{k} = stablehlo.constant {literal}" for k, literal in enumerate(literals))
    return f"func.func public @main() {{ {lines}\n return }}"


@pytest.mark.parametrize("type", TYPES)
def test_constants_of_all_element_types(type: str) -> None:
    dtype = TYPES[type]
    pairs = "(1.0, 0.5)", "(0.5, 1.0)"
    one, other = pairs if dtype.kind == "c" else ("1", "0") if "i" in type else ("1.0", "2.0")
    texts = f"dense<[{one}, {other}, {one}]> : tensor<3x{type}>", f"dense<{one}> : tensor<4x5x{type}>"
    values = {one: 1 + 0.5j, other: 0.5 + 1j} if dtype.kind == "c" else {one: float(one), other: float(other)}
    artifact = artifact_of_text(function_of_constants(*texts))
    check_written(artifact)
    listed, splat = constants(artifact)
    assert listed.dtype == splat.dtype == dtype
    np.testing.assert_array_equal(listed, np.array([values[one], values[other], values[one]]).astype(dtype))
    np.testing.assert_array_equal(splat, np.full((4, 5), values[one]).astype(dtype))
    assert not any(splat.strides)


def test_truth_values_are_packed_into_bits() -> None:
    random = np.random.default_rng(0)
    rows = [random.integers(0, 2, n).astype(bool) for n in range(1, 40)]
    rows += [np.full(n, x) for n in (1, 2, 7, 8, 9, 64, 100) for x in (True, False)]
    texts = [f"dense<[{', '.join('true' if x else 'false' for x in row)}]> : tensor<{len(row)}xi1>" for row in rows]
    for version in ("0.9.0", CURRENT):
        artifact = artifact_of_text(function_of_constants(*texts), version)
        check_written(artifact)
        for found, row in zip(constants(artifact), rows, strict=True):
            np.testing.assert_array_equal(found, row)


def test_constants_keep_the_bits_of_nan_and_empty_ones_their_shape() -> None:
    texts = "dense<[0x7FC00001, 0xFF800000, 0x80000000]> : tensor<3xf32>", "dense<> : tensor<0x3xf32>"
    artifact = artifact_of_text(function_of_constants(*texts))
    check_written(artifact)
    bits, empty = constants(artifact)
    assert [hex(x) for x in bits.view(np.uint32)] == ["0x7fc00001", "0xff800000", "0x80000000"]
    assert empty.shape == (0, 3)


def test_quantized_types_are_read_and_refused_when_run() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 0.5:3>>
        %1 = stablehlo.uniform_dequantize %0 : (tensor<2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2xf32>
        return %1 : tensor<2xf32> }"""
    program = stablehlo.parse(artifact_of_text(text))
    with pytest.raises(TinyxlaError, match="quantized"):
        program(np.ones(2, np.float32))


def test_locations_are_in_errors() -> None:
    module = jax.jit(jax.numpy.sin).lower(1.0).compiler_ir("stablehlo")
    (operation, _) = bytecode.read(serialized(module)).functions["main"].body.block.operations
    assert operation.name == "stablehlo.sine"
    assert operation.location is not None
    assert operation.location.name == "jit(sin)/sin"


# --- attributes of the builtin dialect --------------------------------------------------------------------------------


def test_builtin_attributes_are_those_of_the_text() -> None:
    text = """module @m attributes {a.b = [1 : i32, "s", -7 : i64, true, unit], a.c = {x = 1.5 : f32, y = 0x7FC00000 : f32},
        a.d = dense<[1, -2]> : tensor<2xi16>, a.e = array<i64: 1, 2>, a.f = array<i1: true, false>, a.g = @f::@g, a.h = tensor<2x?xf32>,
        a.i = (tensor<f32>, index) -> tuple<i32>, a.j = dense<true> : tensor<3xi1>, a.k = -1 : index, a.l = tensor<*xbf16>,
        a.m = complex<f64>, a.n = 255 : ui8, a.o = 170141183460469231731687303715884105727 : i128} {}"""
    ours = print_module_op(bytecode.read(plain_bytecode(text)))
    assert canonical(ours) == canonical(text)


def test_dense_resources_are_constants() -> None:
    text = """module attributes {a.b = dense_resource<r> : tensor<3xf32>, a.c = dense_resource<s> : tensor<2xi64>} {}
        {-# dialect_resources: { builtin: { r: "0x040000000000803F0000004000004040",
                                            s: "0x0800000001000000000000000200000000000000" } } #-}"""
    attributes = bytecode.read(plain_bytecode(text)).attributes
    floats, integers = (attributes[name] for name in ("a.b", "a.c"))
    assert isinstance(floats, DenseAttr)
    assert isinstance(integers, DenseAttr)
    assert floats.value.tolist() == [1, 2, 3]
    assert integers.value.tolist() == [1, 2]


def plain_bytecode(text: str) -> bytes:
    """MLIR's bytecode of a module, without VHLO."""
    import io

    with jax_mlir.make_ir_context() as context:
        context.allow_unregistered_dialects = True
        found = io.BytesIO()
        jaxlib_ir.Module.parse(text).operation.write_bytecode(found)
        return found.getvalue()


def test_bytecode_that_is_not_portable_is_refused() -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    with pytest.raises(BytecodeError, match=r"func.func is not portable"):
        bytecode.read(plain_bytecode(text))


# --- damage -----------------------------------------------------------------------------------------------------------


def read_or_refuse(data: bytes) -> ModuleOp | None:
    """The module, or None after an error with an offset inside of the bytes."""
    refused: BytecodeError | None = None
    try:
        return bytecode.read(data)
    except BytecodeError as error:
        refused = error
    assert 0 <= refused.offset <= len(data)
    return None


@pytest.mark.parametrize("version", ["0.9.0", CURRENT])
def test_truncated_artifacts_are_refused(version: str) -> None:
    artifact = serialized(lowered("network"), version)
    for length in range(len(artifact)):
        assert read_or_refuse(artifact[:length]) is None


@pytest.mark.parametrize("version", ["0.9.0", CURRENT])
@pytest.mark.parametrize("changes", [60, pytest.param(1000, marks=pytest.mark.thorough)])
def test_changed_artifacts_are_read_or_refused(version: str, changes: int) -> None:
    """Bytes exchanged, left out and put in: a module, which compiles, or an error of the library.

    It does not run: a changed loop may have no end.
    """
    artifact = serialized(lowered("control flow"), version)
    random = np.random.default_rng(changes)
    read = 0
    for _ in range(changes):
        changed = bytearray(artifact)
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(0, len(changed)))
            kind = random.integers(0, 4)
            if kind == 0:
                del changed[at]
            elif kind == 1:
                changed.insert(at, int(random.integers(0, 256)))
            else:
                changed[at] ^= 1 << int(random.integers(0, 8)) if kind == 2 else int(random.integers(1, 256))
        module = read_or_refuse(bytes(changed))
        if module is not None:
            read += 1
            if read % 20 == 1:
                with contextlib.suppress(TinyxlaError):
                    jit(stablehlo.Program(module)).lower(PROGRAMS["control flow"][1][0]).compile()
    assert read > changes // 20


def test_errors_say_what_is_wrong() -> None:
    artifact = serialized(lowered("sin"))
    with pytest.raises(BytecodeError, match="byte 0: MLIR's bytecode begins with"):
        bytecode.read(b"func.func @main() {}")
    with pytest.raises(BytecodeError, match="neither an artifact"):
        stablehlo.parse(b"func.func @main() {}")
    with pytest.raises(BytecodeError, match="version 40 of MLIR's bytecode is not known"):
        bytecode.read(artifact[:4] + bytes([81]) + artifact[5:])
    with pytest.raises(BytecodeError, match="section of strings is missing"):
        bytecode.read(artifact[: artifact.index(b"\0") + 1])
    newer = serialized(lowered("sin"), "1.0.0")
    assert newer.count(b"sine_v1") == 1
    with pytest.raises(BytecodeError, match=r"vhlo.sine_v7: this version of the operation is not known"):
        bytecode.read(newer.replace(b"sine_v1", b"sine_v7"))
    with pytest.raises(BytecodeError, match="consists of one module"):
        bytecode.read(handmade([(number(15), "builtin")], [], [number(1) + b"\0" + number(0)], ["sine_v1"]))


# --- artifacts by hand, whose attributes are as no compiler writes them -----------------------------------------------


def number(value: int) -> bytes:
    """An integer of at most 14 bits in MLIR's encoding."""
    return bytes([value << 1 | 1]) if value < 128 else (value << 2 | 2).to_bytes(2, "little")


def handmade(
    attributes: list[tuple[bytes, str]], types: list[tuple[bytes, str]], operations: list[bytes], names: list[str]
) -> bytes:
    """Bytecode of version 1: attributes and types as bytes with their dialects, and operations."""
    dialects = ["builtin", "vhlo"]
    strings = [x.encode() + b"\0" for x in (*dialects, "module", *names)]
    table = number(len(strings)) + b"".join(number(len(x)) for x in reversed(strings)) + b"".join(strings)
    declared = number(2) + number(0) + number(2)  # two dialects without versions
    declared += number(0) + number(1) + number(2)  # the module
    declared += number(1) + number(len(names)) + b"".join(number(3 + k) for k in range(len(names)))
    offsets = number(len(attributes)) + number(len(types))
    for data, dialect in (*attributes, *types):
        offsets += number(dialects.index(dialect)) + number(1) + number(len(data) << 1 | 1)
    entries = b"".join(data for data, _ in (*attributes, *types))
    body = number(len(operations) << 1) + b"".join(operations)
    sections = enumerate([table, declared, entries, offsets, body])
    return b"ML\xefR" + number(1) + b"by hand\0" + b"".join(bytes([k]) + number(len(x)) + x for k, x in sections)


def with_attribute(attributes: list[tuple[bytes, str]]) -> bytes:
    """An artifact whose module has the last of these attributes under a name."""
    unknown = (number(15), "builtin")
    name = (number(2) + number(2), "builtin")  # a string
    count = len(attributes)
    dictionary = (number(1) + number(1) + number(count + 1) + number(count - 1), "builtin")
    module = (
        number(0)
        + bytes([0b10001])
        + number(count)
        + number(count + 2)
        + number(1 << 1)
        + number(1)
        + number(0)
        + number(0)
    )
    return handmade([*attributes, unknown, name, dictionary], [], [module], [])


def array_of(*numbers: int) -> tuple[bytes, str]:
    return number(0) + number(len(numbers)) + b"".join(map(number, numbers)), "builtin"


def test_attributes_by_hand_are_read() -> None:
    module = bytecode.read(with_attribute([(number(7), "builtin"), array_of(0, 0)]))
    assert len(module.attributes["module"].elements) == 2  # type: ignore[union-attr]


def test_attributes_that_are_too_deep_too_large_or_endless_are_refused() -> None:
    unit = (number(7), "builtin")
    with pytest.raises(BytecodeError, match="contains itself"):
        bytecode.read(with_attribute([array_of(1), array_of(0)]))
    with pytest.raises(BytecodeError, match="more than 100 attributes are nested"):
        bytecode.read(with_attribute([unit, *(array_of(k) for k in range(200))]))
    with pytest.raises(BytecodeError, match="has more than 4194304 parts"):  # 2 to the power of 40
        bytecode.read(with_attribute([unit, *(array_of(k, k) for k in range(40))]))
    with pytest.raises(BytecodeError, match="there is no attribute 77"):
        bytecode.read(with_attribute([unit, array_of(77)]))
    with pytest.raises(BytecodeError, match="there cannot be 100 attributes in 0 bytes"):
        bytecode.read(with_attribute([unit, (number(0) + number(100), "builtin")]))
    with pytest.raises(BytecodeError, match="builtin has no attribute with the number 99"):
        bytecode.read(with_attribute([unit, (number(99), "builtin")]))


def test_resources_that_many_constants_take_are_refused() -> None:
    uses = ", ".join(f"a.x{k} = dense_resource<r> : tensor<{1 << k}x{1 << 16 - k}xi8>" for k in range(17))
    resource = "0x01000000" + "00" * (1 << 16)
    text = f'module attributes {{{uses}}} {{}} {{-# dialect_resources: {{ builtin: {{ r: "{resource}" }} }} #-}}'
    with pytest.raises(BytecodeError, match="resources are taken more than 8 times"):
        bytecode.read(plain_bytecode(text))


def test_vectors_that_are_shared_are_refused() -> None:
    """A FlatBuffer whose platforms are one string, a thousand times."""
    count, length = 1000, 1000
    vtable = (4 + 2 * 10).to_bytes(2, "little") + (8).to_bytes(2, "little") + b"\0\0" * 9 + (4).to_bytes(2, "little")
    table_at = 4 + len(vtable)
    table = len(vtable).to_bytes(4, "little") + (4).to_bytes(4, "little")
    string_at = table_at + len(table) + 4 + 4 * count
    offsets = [string_at - (table_at + len(table) + 4 + 4 * k) for k in range(count)]
    vector = count.to_bytes(4, "little") + b"".join(x.to_bytes(4, "little") for x in offsets)
    string = length.to_bytes(4, "little") + b"a" * length + b"\0"
    data = table_at.to_bytes(4, "little") + vtable + table + vector + string
    with pytest.raises(BytecodeError, match="same bytes over and over"):
        Buffer(data).root().strings(9)


# --- jax.export -------------------------------------------------------------------------------------------------------


@pytest.fixture
def export() -> Any:
    pytest.importorskip("flatbuffers")
    from jax import export

    return export


def test_exported_function_has_its_trees_and_types(export: Any) -> None:
    def f(x: Any, unused: Any, *, options: Any) -> Any:
        return {"sum": options["a"] + x, "none": None, "list": [x, (x,)]}

    shape = jax.ShapeDtypeStruct((2, 3), np.float32)
    made = export.export(jax.jit(f))(shape, shape, options={"a": shape, "b": [jax.ShapeDtypeStruct((), np.int8)]})
    found = bytecode.read_exported(made.serialize())
    assert (found.function_name, found.nr_devices, found.platforms) == ("f", 1, ("cpu",))
    assert [(x.shape, x.dtype) for x in found.in_avals] == [(("2", "3"), "float32")] * 3 + [((), "int8")]
    assert found.module_kept_var_idx == made.module_kept_var_idx
    assert found.calling_convention_version == made.calling_convention_version
    assert found.mlir_module_serialized == made.mlir_module_serialized
    assert found.vjp is None
    arguments, keywords = found.in_tree.children
    assert [x.kind for x in arguments.children] == ["leaf", "leaf"]
    (options,) = keywords.children
    assert (options.kind, options.keys, options.children[1].kind) == ("dict", ("a", "b"), "list")
    assert (found.out_tree.kind, found.out_tree.keys) == ("dict", ("list", "none", "sum"))
    assert [x.kind for x in found.out_tree.children] == ["list", "none", "leaf"]
    assert bytecode.read_exported(bytecode.write_exported(found)) == found
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(stablehlo.parse(made.serialize())(x, 2 * x)[2], 3 * x)


def test_exported_gradients_platforms_and_checks_are_read(export: Any) -> None:
    checks = [export.DisabledSafetyCheck.custom_call("a"), export.DisabledSafetyCheck.platform()]
    f = export.export(jax.jit(lambda x: jax.numpy.sin(x)), platforms=("cpu", "tpu"), disabled_checks=checks)
    found = bytecode.read_exported(f(jax.ShapeDtypeStruct((), np.float32)).serialize(vjp_order=2))
    assert found.platforms == ("cpu", "tpu")
    assert found.disabled_checks == ("custom_call:a", "platform")
    assert found.vjp is not None
    assert found.vjp.vjp is not None
    assert found.vjp.vjp.vjp is None
    assert len(found.vjp.in_avals) == 2
    assert "main" in bytecode.read(found.vjp.vjp.mlir_module_serialized).functions
    assert bytecode.read_exported(bytecode.write_exported(found)) == found


@pytest.mark.parametrize("name", SYMBOLIC)
def test_exported_function_with_symbolic_sizes_runs(name: str, export: Any) -> None:
    source, texts = SYMBOLIC[name]
    scope = export.SymbolicScope()
    shapes = [jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), np.float32) for text in texts]
    compiled = jax.jit(function_of(source))
    data = export.export(compiled)(*shapes).serialize()
    assert [",".join(x.shape) for x in bytecode.read_exported(data).in_avals] == list(texts)
    sizes = {"b": 4, "c": 3, "h": 5, "w": 6}
    arguments = [np.ones([sizes.get(d) or int(d) for d in text.split(",")], np.float32) for text in texts]
    compare(stablehlo.parse(data)(*arguments), compiled(*arguments))


def test_exported_shardings_are_read(export: Any) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", None))
    f = jax.jit(lambda x: jax.lax.with_sharding_constraint(x + 1, split), in_shardings=split)
    data = export.export(f)(jax.ShapeDtypeStruct((4, 4), np.float32)).serialize()
    found = bytecode.read_exported(data)
    assert bytecode.read_exported(bytecode.write_exported(found)) == found
    (sharding,) = found.in_shardings
    assert sharding is not None
    assert (sharding.axis_names, sharding.axis_sizes, sharding.partitions) == (("x",), (1,), (("x",), ()))
    x = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(stablehlo.parse(data)(x), x + 1)


def test_damaged_exported_functions_are_read_or_refused(export: Any) -> None:
    data = export.export(jax.jit(jax.numpy.sin))(jax.ShapeDtypeStruct((2,), np.float32)).serialize(vjp_order=1)
    for length in range(0, len(data), 7):
        with contextlib.suppress(BytecodeError):
            bytecode.read_exported(data[:length])
    random = np.random.default_rng(3)
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(random.integers(1, 6)):
            changed[int(random.integers(0, len(changed)))] = int(random.integers(0, 256))
        with contextlib.suppress(BytecodeError):
            bytecode.read_exported(changed)


def test_artifacts_are_values_of_the_library() -> None:
    program = stablehlo.parse(
        serialized(jax.jit(lambda x: (x * x).sum()).lower(np.ones(3, np.float32)).compiler_ir("stablehlo"))
    )
    x = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_array_equal(tx.grad(program)(x), 2 * x)
    np.testing.assert_array_equal(tx.vmap(program)(np.stack([x, 2 * x])), [14, 56])
    with pytest.raises(ArgumentError, match="takes 1 arguments"):
        program(x, x)
