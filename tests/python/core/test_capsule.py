"""Handmade DLPack capsules: invalid ones are errors, never crashes."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

import hookline

INT64_MAX = 2**63 - 1


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]


class Producer:
    """Six floats in shape (2, 3), and a counter of deleter calls."""

    def __init__(self, versioned: bool = True) -> None:
        self.memory = (ctypes.c_float * 6)(*range(6))
        self.shape, self.strides = (ctypes.c_int64 * 17)(2, 3), (ctypes.c_int64 * 17)(3, 1)
        self.deleted = 0
        self.managed = Versioned(major=1, minor=0) if versioned else Unversioned()
        self.managed.deleter = Deleter(self.delete)
        self.tensor = self.managed.tensor
        self.tensor.data = ctypes.addressof(self.memory)
        self.tensor.device_type, self.tensor.ndim = 1, 2
        self.tensor.code, self.tensor.bits, self.tensor.lanes = 2, 32, 1
        self.tensor.shape, self.tensor.strides = self.shape, self.strides
        self.name = b"dltensor_versioned" if versioned else b"dltensor"

    def delete(self, _: int) -> None:
        self.deleted += 1

    def capsule(self) -> Any:
        return new_capsule(ctypes.addressof(self.managed), self.name, None)


@pytest.mark.parametrize("versioned", [True, False])
def test_good_capsule(versioned: bool) -> None:
    producer = Producer(versioned)
    capsule = producer.capsule()
    tensor = hookline.from_dlpack(capsule)
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert capsule_name(capsule) == b"used_" + producer.name
    with pytest.raises(hookline.InvalidArgument, match="consumed"):
        hookline.from_dlpack(capsule)
    view = tensor[1]
    del tensor, capsule
    assert producer.deleted == 0
    del view
    assert producer.deleted == 1


def test_flags_offset_and_missing_strides() -> None:
    producer = Producer()
    producer.managed.flags = 1
    producer.tensor.strides = None
    producer.tensor.byte_offset = 8
    producer.shape[0], producer.tensor.ndim = 4, 1
    tensor = hookline.from_dlpack(producer.capsule())
    assert tensor.read_only
    assert tensor.numpy().tolist() == [2, 3, 4, 5]


def test_no_deleter() -> None:
    producer = Producer()
    producer.managed.deleter = Deleter(0)
    assert hookline.from_dlpack(producer.capsule()).shape == (2, 3)


def wrong_device(p: Producer) -> None:
    p.tensor.device_type = 2


def negative_extent(p: Producer) -> None:
    p.shape[0] = -1


def overflow(p: Producer) -> None:
    p.shape[0] = p.shape[1] = 2**62


def overflow_in_bytes(p: Producer) -> None:
    p.shape[0], p.shape[1] = 2**61, 1


def overflow_behind_a_zero(p: Producer) -> None:
    p.tensor.ndim = 3
    p.shape[0], p.shape[1], p.shape[2] = 0, 2**62, 2**62


def too_many_dimensions(p: Producer) -> None:
    p.tensor.ndim = 17


def negative_dimensions(p: Producer) -> None:
    p.tensor.ndim = -1


def most_dimensions(p: Producer) -> None:
    p.tensor.ndim = 2**31 - 1


def null_data(p: Producer) -> None:
    p.tensor.data = None


def null_shape(p: Producer) -> None:
    p.tensor.shape = None


def misaligned(p: Producer) -> None:
    p.tensor.byte_offset = 1


def far_strides(p: Producer) -> None:
    p.strides[0] = INT64_MAX


def farthest_strides(p: Producer) -> None:
    p.strides[0] = -INT64_MAX - 1


def strides_that_add_up(p: Producer) -> None:
    p.strides[0], p.strides[1] = 2**60, 2**60


def wrong_name(p: Producer) -> None:
    p.name = b"dltensor_of_mine"


def no_name(p: Producer) -> None:
    p.name = None


def next_major_version(p: Producer) -> None:
    p.managed.major = 2


def vectors(p: Producer) -> None:
    p.tensor.lanes = 4


def odd_bits(p: Producer) -> None:
    p.tensor.bits = 7


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (wrong_device, hookline.Unsupported, "cuda:0"),
        (negative_extent, hookline.InvalidArgument, "negative extent"),
        (overflow, hookline.InvalidArgument, "overflow"),
        (overflow_in_bytes, hookline.InvalidArgument, "overflow"),
        (overflow_behind_a_zero, hookline.InvalidArgument, "overflow"),
        (too_many_dimensions, hookline.InvalidArgument, "dimensions, got 17"),
        (negative_dimensions, hookline.InvalidArgument, "dimensions, got -1"),
        (most_dimensions, hookline.InvalidArgument, "dimensions"),
        (null_data, hookline.InvalidArgument, "null"),
        (null_shape, hookline.InvalidArgument, "the shape is null"),
        (misaligned, hookline.InvalidArgument, "aligned"),
        (far_strides, hookline.InvalidArgument, "overflow"),
        (farthest_strides, hookline.InvalidArgument, "overflow"),
        (strides_that_add_up, hookline.InvalidArgument, "overflow"),
        (wrong_name, hookline.InvalidArgument, "dltensor_of_mine"),
        (no_name, hookline.InvalidArgument, "is not a DLPack tensor"),
        (next_major_version, hookline.Unsupported, "version 2"),
        (vectors, hookline.Unsupported, "4 lanes"),
        (odd_bits, hookline.Unsupported, "7 bits"),
    ],
)
def test_bad_capsule(spoil: Callable[[Producer], None], error: type, text: str) -> None:
    producer = Producer()
    spoil(producer)
    capsule = producer.capsule()
    with pytest.raises(error, match=text):
        hookline.from_dlpack(capsule)
    assert producer.deleted == 0  # the producer still owns the tensor
    assert capsule_name(capsule) == producer.name


def test_an_unconsumed_capsule_frees_its_tensor() -> None:
    producer = Producer()
    tensor = hookline.from_dlpack(producer.capsule())
    for version in (None, (1, 0)):
        capsule = tensor.__dlpack__(max_version=version)
        assert capsule_name(capsule) == (b"dltensor_versioned" if version else b"dltensor")
        taken = hookline.from_dlpack(tensor.__dlpack__(max_version=version))
        del capsule, taken
    assert producer.deleted == 0
    del tensor
    assert producer.deleted == 1
