"""Codecs from Python: messages of NumPy arrays, and allreduce of encoded values."""

import numpy as np
import pytest

import hookline as hl


@pytest.mark.parametrize(("text", "off"), [("fp16", 1e-3), ("bf16", 1e-2), ("int8", 0.02), ("int4(block=32)", 0.3)])
def test_values_come_back_within_the_rounding(text, off):
    codec = hl.make_codec(text)
    values = np.sin(np.arange(1000, dtype=np.float32))
    message = codec.encode(values)
    assert len(message) == codec.encoded_bytes(1000)
    assert np.abs(codec.decode(message) - values).max() < off
    assert codec.encode(values) == message


def test_corrupt_messages_are_rejected():
    codec = hl.make_codec("int8")
    message = codec.encode(np.ones(100, np.float32))
    for corrupt in (b"", message[:31], message[:-1], message + b"x", b"\0" * len(message), message[::-1]):
        with pytest.raises(hl.InvalidArgument):
            codec.decode(corrupt)


def test_stochastic_rounding_depends_on_its_key():
    codec = hl.make_codec("int4(rounding=stochastic)")
    values = np.linspace(-1, 1, 500, dtype=np.float32)
    one = codec.encode(values, seed=1, step=2, bucket=3, rank=4)
    assert codec.encode(values, seed=1, step=2, bucket=3, rank=4) == one
    for other in ({"seed": 2}, {"step": 3}, {"bucket": 4}, {"rank": 5}):
        assert codec.encode(values, **{"seed": 1, "step": 2, "bucket": 3, "rank": 4, **other}) != one
    mean = np.mean([codec.decode(codec.encode(values, seed=s)) for s in range(400)], axis=0)
    assert np.abs(mean - values).max() < 0.04  # a single rounding is off by up to 0.14


@pytest.mark.parametrize("codec", ["fp16", "int8(block=64)", None])
def test_allreduce_of_encoded_values(ranks, codec):
    def body(group):
        for count in (1, 7, 5000):
            x = np.full(count, group.rank() + 1, np.float32)
            work = group.allreduce([x], op=hl.ReduceOp.AVG, codec=codec and hl.make_codec(codec))
            work.wait()
            assert np.allclose(x, 2, atol=0.01)
            assert work.get_future().wait()[0] is x
            y = np.full(count, 1.0, np.float32)
            group.allreduce(y, codec=codec).wait()
            assert np.allclose(y, 3, atol=0.01)

    ranks(3, body)


def test_allreduce_rejects_invalid_arguments(ranks):
    def body(group):
        x = np.ones(3, np.float32)
        with pytest.raises(hl.InvalidArgument, match="one tensor"):
            group.allreduce([x, x], codec="fp16")
        with pytest.raises(TypeError, match=r"codec: expected a hookline\.Codec"):
            group.allreduce([x], codec=5)
        with pytest.raises(hl.InvalidArgument, match="sum, avg or premul_sum"):
            group.allreduce([x], op=hl.ReduceOp.MAX, codec="fp16")
        with pytest.raises(hl.InvalidArgument, match="int32"):
            group.allreduce([np.ones(3, np.int32)], codec="fp16")
        with pytest.raises(hl.InvalidArgument, match="character 1"):
            group.allreduce([x], codec="int7")

    ranks(1, body)
