"""Tensor in Python: attributes, views, and memory shared with NumPy and torch."""

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hookline

NUMPY_TYPES = {
    name: np.dtype(name)
    for name in ["float64", "float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"]
} | {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_attributes() -> None:
    tensor = hookline.zeros((2, 3, 4), "float16")[:, 1:, ::2]
    assert (tensor.shape, tensor.strides, tensor.ndim) == ((2, 2, 2), (12, 4, 2), 3)
    assert (tensor.size, tensor.numel(), tensor.itemsize, tensor.nbytes) == (8, 8, 2, 16)
    assert (tensor.dtype, tensor.storage_offset, tensor.read_only, len(tensor)) == ("float16", 4, False, 2)
    assert not tensor.is_contiguous()
    assert tensor.contiguous().is_contiguous()
    assert repr(tensor) == "hookline.Tensor(float16[2, 2, 2] with strides [12, 4, 2])"


def test_new_memory() -> None:
    assert hookline.empty(3).data_ptr() % 64 == 0
    assert hookline.zeros([2, 3]).numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert hookline.full((), 2.5).item() == 2.5
    assert hookline.full(2, 3, int).numpy().tolist() == [3, 3]
    with pytest.raises(hookline.InvalidArgument, match="negative"):
        hookline.empty((2, -1))
    with pytest.raises(hookline.InvalidArgument, match="overflow"):
        hookline.empty((2**40, 2**40))
    with pytest.raises(hookline.InvalidArgument, match="at most 16"):
        hookline.empty((1,) * 17)
    with pytest.raises(hookline.ResourceError, match="bytes"):
        hookline.empty(2**60)


@pytest.mark.parametrize("dtype", ["f32", "float32", np.float32, np.dtype("float32"), torch.float32])
def test_dtype_names(dtype: object) -> None:
    assert hookline.empty(1, dtype).dtype == "float32"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (torch.bfloat16, "bfloat16"),
        (ml_dtypes.bfloat16, "bfloat16"),
    ],
)
def test_other_dtypes(dtype: object, name: str) -> None:
    assert hookline.empty(1, dtype).dtype == name


@pytest.mark.parametrize("dtype", ["complex64", np.uint16, torch.complex64, 3, object])
def test_unknown_dtype(dtype: object) -> None:
    with pytest.raises(hookline.InvalidArgument, match="unknown dtype"):
        hookline.empty(1, dtype)


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_numpy_shares_memory(name: str) -> None:
    array = np.arange(6).astype(NUMPY_TYPES[name]).reshape(2, 3)
    tensor = hookline.asarray(array)
    assert tensor.dtype == name
    assert tensor.data_ptr() == address(array)
    back = tensor.numpy()
    assert back.dtype == array.dtype
    assert address(back) == address(array)
    back[1, 1] = 1
    assert array[1, 1] == 1
    assert np.array_equal(np.asarray(tensor), array)


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_torch_shares_memory(name: str) -> None:
    source = torch.arange(6).to(getattr(torch, name)).reshape(2, 3).t()
    for take in (hookline.asarray, hookline.from_dlpack):
        tensor = take(source)
        assert (tensor.dtype, tensor.shape, tensor.strides) == (name, (3, 2), (1, 3))
        back = torch.from_dlpack(tensor)
        assert back.dtype == source.dtype
        assert back.data_ptr() == source.data_ptr() == tensor.data_ptr()
        assert torch.equal(back, source)


def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    array = hookline.full(2, 1.0, "bfloat16").numpy()
    assert array.dtype == np.uint16
    assert array.tolist() == [0x3F80, 0x3F80]


@given(
    hnp.arrays(st.sampled_from(list(NUMPY_TYPES.values())[:-1]), hnp.array_shapes(min_dims=0, min_side=0, max_dims=4)),
    st.data(),
)
def test_round_trip_of_any_view(array: np.ndarray, data: st.DataObject) -> None:
    steps = st.sampled_from([slice(None), slice(None, None, -1), slice(1, None, 2)])
    view = array[tuple(data.draw(steps) for _ in range(array.ndim))].transpose()
    for tensor in (hookline.asarray(view), hookline.asarray(view).clone()):
        assert tensor.shape == view.shape
        assert tensor.numpy().tobytes() == view.tobytes()
        if min(tensor.strides, default=0) >= 0:
            assert np.from_dlpack(tensor).tobytes() == view.tobytes()
    copy = hookline.empty(view.shape, view.dtype)
    copy.copy_from(view)
    assert copy.numpy().tobytes() == view.tobytes()


def test_negative_strides() -> None:
    array = np.arange(4.0)[::-1]
    tensor = hookline.asarray(array)
    assert tensor.strides == (-1,)
    assert tensor.numpy().tolist() == [3, 2, 1, 0]
    with pytest.raises(hookline.InvalidArgument, match="negative strides"):
        torch.from_dlpack(tensor)
    assert torch.from_dlpack(tensor.clone()).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_no_dimensions_and_no_elements(shape: tuple[int, ...]) -> None:
    for source in (np.zeros(shape, np.float32), torch.zeros(shape), hookline.zeros(shape)):
        tensor = hookline.asarray(source)
        assert tensor.shape == shape
        assert tensor.numpy().shape == shape
        assert tuple(torch.from_dlpack(tensor).shape) == shape


def test_read_only() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    tensor = hookline.asarray(array)
    assert tensor.read_only
    assert "read-only" in repr(tensor)
    assert not tensor.numpy().flags.writeable
    assert not np.from_dlpack(tensor).flags.writeable
    assert hookline.asarray(b"bytes").read_only
    with pytest.raises(hookline.InvalidArgument, match="cannot be written"):
        tensor.fill(1)
    with pytest.raises(TypeError, match="read-only"):
        memoryview(tensor)[0] = 1
    with pytest.raises(hookline.InvalidArgument, match="unversioned"):
        tensor.__dlpack__()
    assert hookline.from_dlpack(tensor.__dlpack__(max_version=(1, 0))).read_only
    assert not hookline.from_dlpack(tensor.__dlpack__(max_version=(1, 0), copy=True)).read_only
    assert hookline.zeros(1).as_read_only().read_only


def test_memory_outlives_its_creator() -> None:
    array = np.arange(1000.0)
    gone = weakref.ref(array)
    view = hookline.asarray(array)[10:20]
    del array
    gc.collect()
    assert view.numpy()[0] == 10
    view = view.numpy()
    gc.collect()
    assert view[0] == 10
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_torch_tensor_is_released() -> None:
    source = torch.zeros(4)
    gone = weakref.ref(source)
    tensor = hookline.asarray(source)
    del source
    assert gone() is not None
    del tensor
    assert gone() is None


def test_requires_grad_is_taken_as_detached() -> None:
    source = torch.zeros(3, requires_grad=True)
    hookline.asarray(source).fill(2)
    assert source.tolist() == [2, 2, 2]
    assert source.is_leaf


def test_torch_views_that_are_not_their_memory() -> None:
    negated = torch.ones(3, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with pytest.raises(hookline.InvalidArgument, match="resolve_neg"):
        hookline.asarray(negated)
    assert hookline.asarray(negated.resolve_neg()).numpy().tolist() == [0, 0, 0]
    for source in (torch.ones(3, dtype=torch.complex64).conj(), torch.eye(2).to_sparse()):
        with pytest.raises(hookline.Unsupported):
            hookline.asarray(source)


def test_other_device() -> None:
    with pytest.raises(hookline.Unsupported, match="meta") as caught:
        hookline.asarray(torch.empty(3, device="meta"))
    assert caught.value.__cause__ is not None

    class OnCuda:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 3)

        def __dlpack__(self, **_: object) -> object:
            raise AssertionError("__dlpack__ called although __dlpack_device__ reports CUDA")

    with pytest.raises(hookline.Unsupported, match="cuda:3"):
        hookline.asarray(OnCuda())
    with pytest.raises(hookline.Unsupported, match="device type 2"):
        hookline.zeros(1).__dlpack__(dl_device=(2, 0))


def test_old_and_new_dlpack_exporters() -> None:
    tensor = hookline.full(2, 7.0)

    class Old:
        def __dlpack__(self, stream: object = None) -> object:
            return tensor.__dlpack__()

    class New:
        def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object:
            return tensor.__dlpack__(max_version=max_version)

    class Wrong:
        def __dlpack__(self, **_: object) -> object:
            return 5

    for exporter in (Old(), New()):
        assert hookline.from_dlpack(exporter).data_ptr() == tensor.data_ptr()
    with pytest.raises(TypeError, match="capsule"):
        hookline.from_dlpack(Wrong())


@pytest.mark.parametrize("source", ["text", 3, None, [1, 2], object()])
def test_objects_that_are_not_tensors(source: object) -> None:
    for take in (hookline.asarray, hookline.from_dlpack):
        with pytest.raises(TypeError):
            take(source)


@pytest.mark.parametrize("dtype", [">f4", "complex64", "U4", "uint16", "V3"])
def test_arrays_of_other_types(dtype: str) -> None:
    with pytest.raises(hookline.Unsupported, match="float64"):
        hookline.asarray(np.zeros(2, dtype))


def test_unaligned_strides() -> None:
    record = np.zeros(3, np.dtype([("a", "i1"), ("b", "f4")]))
    with pytest.raises(hookline.InvalidArgument, match="not multiples of the element size"):
        hookline.asarray(record["b"])
    shifted = np.zeros(9, np.uint8)[1:].view(np.float32)
    with pytest.raises(hookline.InvalidArgument, match="aligned"):
        hookline.asarray(shifted)


def test_indexing_matches_numpy() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    tensor = hookline.asarray(array)
    for index in (0, -1, (1, 2), (1, 2, 3), (slice(None), 1), (..., 2), (0, ..., slice(1, 3)), slice(5, 9), ()):
        assert np.array_equal(tensor[index].numpy(), array[index]), index
    for index in (2, -3, (0, 0, 0, 0)):
        with pytest.raises(IndexError):
            tensor[index]
    with pytest.raises(hookline.InvalidArgument, match="step"):
        tensor[::-1]
    with pytest.raises(TypeError):
        tensor["text"]
    assert [row.shape for row in tensor] == [(3, 4), (3, 4)]


def test_reshape() -> None:
    tensor = hookline.asarray(np.arange(6))
    for shape in ((2, 3), ((3, 2),), (-1, 2), ([6],), (np.int64(6),), (np.int64(2), 3)):
        assert tensor.reshape(*shape).numpy().ravel().tolist() == list(range(6))
    assert tensor.reshape(2, 3).flatten().shape == (6,)
    with pytest.raises(hookline.InvalidArgument, match="6 elements"):
        tensor.reshape(4)
    for wrong in (("x",), (2.0, 3), (None,)):
        with pytest.raises(TypeError, match="unexpected type"):
            tensor.reshape(*wrong)  # type: ignore[arg-type]
    with pytest.raises(hookline.InvalidArgument, match="without a copy"):
        hookline.asarray(np.zeros((2, 3)).T).flatten()


def test_item_and_array() -> None:
    assert hookline.asarray(np.array(True)).item() is True
    assert hookline.asarray(np.array(2**62 + 1)).item() == 2**62 + 1
    assert hookline.full(1, 1.5, "bfloat16").item() == 1.5
    with pytest.raises(hookline.InvalidArgument, match="one element"):
        hookline.zeros(2).item()
    with pytest.raises(TypeError, match="zero-dimensional"):
        len(hookline.zeros(()))
    tensor = hookline.full(2, 1.5)
    assert np.asarray(tensor, np.float64).dtype == np.float64
    assert address(tensor.__array__()) == tensor.data_ptr()
    assert address(tensor.__array__(copy=True)) != tensor.data_ptr()
    with pytest.raises(ValueError, match="copy=False"):
        tensor.__array__(np.float64, copy=False)
