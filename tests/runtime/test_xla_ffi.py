"""Typed handlers of XLA's foreign function interface, compiled in C with the headers that jaxlib has."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, BatchingError, DTypeError, KernelError
from tinyxla.ffi import ffi_call, pycapsule, register_ffi_target, register_ffi_type

SOURCE = r"""
#include <string.h>
#include "xla/ffi/api/c_api.h"

static XLA_FFI_Error *failure(XLA_FFI_CallFrame *frame, const char *message) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, 0, message,
                                    XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&args);
}

static void *attribute(XLA_FFI_Attrs *attrs, const char *name, XLA_FFI_AttrType type) {
  for (int64_t k = 0; k < attrs->size; k++)
    if (attrs->types[k] == type && attrs->names[k]->len == strlen(name) &&
        !memcmp(attrs->names[k]->ptr, name, strlen(name)))
      return attrs->attrs[k];
  return 0;
}

/* y = scale * x + sum(terms) + inner.shift, where x is f32 of any shape */
XLA_FFI_Error *affine(XLA_FFI_CallFrame *frame) {
  if (frame->struct_size != XLA_FFI_CallFrame_STRUCT_SIZE || frame->args.size != 1 || frame->rets.size != 1)
    return failure(frame, "one array is needed");
  XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
  XLA_FFI_Scalar *scale = attribute(&frame->attrs, "scale", XLA_FFI_AttrType_SCALAR);
  XLA_FFI_Array *terms = attribute(&frame->attrs, "terms", XLA_FFI_AttrType_ARRAY);
  XLA_FFI_Attrs *inner = attribute(&frame->attrs, "inner", XLA_FFI_AttrType_DICTIONARY);
  XLA_FFI_ByteSpan *name = attribute(&frame->attrs, "name", XLA_FFI_AttrType_STRING);
  if (!scale || scale->dtype != XLA_FFI_DataType_F32) return failure(frame, "scale must be f32");
  if (x->dtype != XLA_FFI_DataType_F32) return failure(frame, "x must be f32");
  if (name && name->len == 3 && !memcmp(name->ptr, "bad", 3)) return failure(frame, "a bad name");
  float sum = 0;
  for (size_t k = 0; terms && k < terms->size; k++) sum += (float)((int64_t *)terms->data)[k];
  if (inner) sum += *(double *)((XLA_FFI_Scalar *)attribute(inner, "shift", XLA_FFI_AttrType_SCALAR))->value;
  int64_t size = 1;
  for (int64_t d = 0; d < x->rank; d++) size *= x->dims[d];
  for (int64_t k = 0; k < size; k++) ((float *)y->data)[k] = *(float *)scale->value * ((float *)x->data)[k] + sum;
  return 0;
}

/* y += x, where y is what its operand was */
XLA_FFI_Error *accumulate(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
  for (int64_t k = 0; k < x->dims[0]; k++) ((int32_t *)y->data)[k] += ((int32_t *)x->data)[k];
  return 0;
}

static XLA_FFI_TypeId state_type;
static int64_t states[8], count;
void *state_type_id(void) { return &state_type; }

XLA_FFI_Error *begin(XLA_FFI_CallFrame *frame) {
  states[count] = *(int64_t *)((XLA_FFI_Scalar *)frame->attrs.attrs[0])->value;
  XLA_FFI_State_Set_Args args = {XLA_FFI_State_Set_Args_STRUCT_SIZE, 0, frame->ctx, frame->stage, &state_type,
                                 &states[count++]};
  return frame->api->XLA_FFI_State_Set(&args);
}

XLA_FFI_Error *next(XLA_FFI_CallFrame *frame) {
  XLA_FFI_State_Get_Args args = {XLA_FFI_State_Get_Args_STRUCT_SIZE, 0, frame->ctx,
                                 XLA_FFI_ExecutionStage_INSTANTIATE, &state_type, 0};
  XLA_FFI_Error *error = frame->api->XLA_FFI_State_Get(&args);
  if (error) return error;
  *(int64_t *)((XLA_FFI_Buffer *)frame->rets.rets[0])->data = (*(int64_t *)args.state)++;
  return 0;
}

typedef struct { const XLA_FFI_Api *api; XLA_FFI_Future *future; float *x, *y; } Work;
static Work work;

static void task(void *data) {
  Work *w = data;
  w->y[0] = w->x[0] + 1;
  XLA_FFI_Future_SetAvailable_Args args = {XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE, 0, w->future};
  w->api->XLA_FFI_Future_SetAvailable(&args);
}

/* returns before its task has run, which the pool of threads does */
XLA_FFI_Error *later(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Future_Create_Args made = {XLA_FFI_Future_Create_Args_STRUCT_SIZE, 0, 0};
  frame->api->XLA_FFI_Future_Create(&made);
  frame->future = made.future;
  work = (Work){frame->api, made.future, ((XLA_FFI_Buffer *)frame->args.args[0])->data,
                ((XLA_FFI_Buffer *)frame->rets.rets[0])->data};
  XLA_FFI_ThreadPool_Schedule_Args args = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, 0, frame->ctx, task, &work};
  return frame->api->XLA_FFI_ThreadPool_Schedule(&args);
}

void triple(float *out, const float **in) { for (int k = 0; k < 3; k++) out[k] = 3 * in[0][k]; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler, jaxlib = shutil.which("cc") or shutil.which("gcc"), importlib.util.find_spec("jaxlib")
    headers = Path(jaxlib.origin).parent / "include" if jaxlib and jaxlib.origin else Path("none")
    if compiler is None or not (headers / "xla" / "ffi" / "api" / "c_api.h").is_file():
        pytest.skip("there is no compiler, or no jaxlib with its headers")
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "handlers.c").write_text(SOURCE)
    made = folder / "handlers.so"
    command = [compiler, "-shared", "-fPIC", f"-I{headers}", str(folder / "handlers.c"), "-o", str(made)]
    subprocess.run(command, check=True)
    found = ctypes.CDLL(str(made))
    found.state_type_id.restype = ctypes.c_void_p
    for name in ("affine", "accumulate", "later"):
        register_ffi_target(f"test.{name}", pycapsule(found[name]))
    return found


def affine(x: Any, vmap_method: str | None = None, **attributes: Any) -> Any:
    given = {"scale": np.float32(2), "terms": np.array([1, 2]), "inner": {"shift": 0.5}, **attributes}
    return ffi_call("test.affine", ShapeDtypeStruct(x.shape, x.dtype), vmap_method=vmap_method)(x, **given)


def test_handler_gets_arrays_and_attributes(library: ctypes.CDLL) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    expected = 2 * np.asarray(x) + 3.5
    np.testing.assert_array_equal(affine(x), expected)
    np.testing.assert_array_equal(tx.jit(affine)(x), expected)
    np.testing.assert_array_equal(affine(jnp.float32(4)), 11.5)
    np.testing.assert_array_equal(affine(x, scale=np.float32(np.inf), terms=np.array([7]))[1], np.full(3, np.inf))
    np.testing.assert_array_equal(affine(jnp.zeros((0, 3))), np.zeros((0, 3)))


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"])
def test_vmap_method_says_how_calls_are_mapped(library: ctypes.CDLL, method: str) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(tx.vmap(lambda row: affine(row, method), 1, 1)(x), 2 * np.asarray(x) + 3.5)


def test_errors_of_a_handler_are_raised(library: ctypes.CDLL) -> None:
    x = jnp.ones(3)
    for attributes, message in (({"name": "bad"}, "a bad name"), ({"scale": 2.0}, "scale must be f32")):
        with pytest.raises(KernelError, match=rf"'test\.affine' failed\. INVALID_ARGUMENT: {message}"):
            tx.jit(lambda x, given=attributes: affine(x, **given))(x)
    with pytest.raises(KernelError, match="x must be f32"):
        affine(jnp.ones(3, int))
    with pytest.raises(BatchingError, match="vmap_method="):
        tx.vmap(affine)(jnp.ones((2, 3)))
    with pytest.raises(ArgumentError, match="vmap_method must be one of"):
        affine(x, "all")
    with pytest.raises(DTypeError, match="the attribute 'terms' must be a number"):
        affine(x, terms=object())


def test_result_that_aliases_an_argument_begins_as_that(library: ctypes.CDLL) -> None:
    like, x, y = ShapeDtypeStruct((3,), np.int32), jnp.array([1, 2, 3]), jnp.array([10, 20, 30])
    call = ffi_call("test.accumulate", like, input_output_aliases={1: 0})
    np.testing.assert_array_equal(tx.jit(call)(x, y), [11, 22, 33])
    np.testing.assert_array_equal(y, [10, 20, 30])
    with pytest.raises(ArgumentError, match="input_output_aliases has 1: 0"):
        call(x, jnp.ones(3))


def test_state_is_made_once_for_the_attributes_of_a_target(library: ctypes.CDLL) -> None:
    register_ffi_type("test.State", {"type_id": pycapsule(library.state_type_id())})
    register_ffi_target("test.next", {"instantiate": pycapsule(library.begin), "execute": pycapsule(library.next)})
    call = ffi_call("test.next", ShapeDtypeStruct((), np.int64), has_side_effect=True)
    with tx.enable_x64(True):
        assert [int(call(start=5)), int(call(start=5)), int(call(start=0)), int(call(start=5))] == [5, 6, 0, 7]


def test_handler_may_go_on_after_its_return(library: ctypes.CDLL) -> None:
    call = tx.jit(ffi_call("test.later", ShapeDtypeStruct((1,), np.float32)))
    assert [float(call(np.float32([k]))[0]) for k in range(20)] == [k + 1 for k in range(20)]


def test_handlers_that_are_none_are_refused(library: ctypes.CDLL) -> None:
    with pytest.raises(ArgumentError, match="execute is needed"):
        register_ffi_target("test.stages", {"instantiate": pycapsule(library.begin)})
    with pytest.raises(ArgumentError, match="must be a PyCapsule"):
        register_ffi_target("test.number", 1.5)
    with pytest.raises(ArgumentError, match="no C function"):
        pycapsule(lambda: None)
    with pytest.raises(ArgumentError, match="needs a PyCapsule 'type_id'"):
        register_ffi_type("test.State", {})
    register_ffi_target("test.triple", pycapsule(library.triple), platform="CUDA")
    with pytest.raises(KernelError, match=r"there is no target 'test\.triple'"):
        ffi_call("test.triple", ShapeDtypeStruct((3,), np.float32))(np.ones(3, np.float32))
    register_ffi_target("test.triple", pycapsule(library.triple), api_version=0)
    call = ffi_call("test.triple", ShapeDtypeStruct((3,), np.float32))
    np.testing.assert_array_equal(call(np.ones(3, np.float32)), [3, 3, 3])


def test_calls_are_exported_with_attributes_and_aliases(library: ctypes.CDLL) -> None:
    like = ShapeDtypeStruct((3,), np.int32)
    accumulate = ffi_call("test.accumulate", like, input_output_aliases={1: 0})
    function = tx.jit(lambda x, y: (affine(x), accumulate(y, y)))
    check = tx.export.DisabledSafetyCheck.custom_call
    checks = [check("test.affine"), check("test.accumulate")]
    exported = tx.export.export(function, disabled_checks=checks)(ShapeDtypeStruct((3,), np.float32), like)
    assert "mhlo.backend_config = {inner = {shift = 5" in exported.mlir_module()
    x, y = tx.export.deserialize(exported.serialize()).call(jnp.ones(3), jnp.array([1, 2, 3]))
    np.testing.assert_array_equal(x, [5.5, 5.5, 5.5])
    np.testing.assert_array_equal(y, [2, 4, 6])
