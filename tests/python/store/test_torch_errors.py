"""Store errors also derive from PyTorch's exceptions if PyTorch is imported."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import pytest
import torch.distributed as dist

import hookline as hl

SHORT = 0.03


@pytest.mark.parametrize("kind", ["memory", "tcp", "prefix"])
def test_timeouts_and_empty_queues(kind: str) -> None:
    tcp = hl.TCPStore("127.0.0.1", 0, None, True)
    store = {"memory": hl.MemoryStore(), "tcp": tcp, "prefix": hl.PrefixStore("p", tcp)}[kind]
    with pytest.raises(dist.DistStoreError, match="wait timeout after 30ms, keys: "):
        store.wait(["k"], SHORT)
    with pytest.raises(dist.DistStoreError, match="barrier timeout"):
        store.barrier("b", 2, SHORT)
    with pytest.raises(dist.QueueEmptyError, match="queue is empty"):
        store.queue_pop("q", False)
    with pytest.raises(hl.InvalidArgument, match="queue is empty"):
        store.queue_pop("q", False)


def test_network_errors() -> None:
    server = hl.TCPStore("127.0.0.1", 0, None, True)
    client = hl.TCPStore("127.0.0.1", server.port)
    with pytest.raises(dist.DistNetworkError, match="failed to listen") as caught:
        hl.TCPStore("127.0.0.1", server.port, None, True)
    assert isinstance(caught.value, hl.ResourceError)
    del server
    with pytest.raises(dist.DistNetworkError) as lost:
        client.get("k")
    assert isinstance(lost.value, hl.PeerLost)
    with pytest.raises(dist.DistNetworkError) as late:
        hl.TCPStore("127.0.0.1", 1, timeout=SHORT)
    assert isinstance(late.value, hl.Timeout)
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined") as missing:
        hl.TCPStore("127.0.0.1", 0, 2, True, SHORT)
    assert not isinstance(missing.value, dist.DistNetworkError)


def test_combined_errors_keep_the_hookline_name_and_can_be_pickled() -> None:
    with pytest.raises(hl.Timeout) as caught:
        hl.MemoryStore(SHORT).get("k")
    error = caught.value
    assert f"{type(error).__module__}.{type(error).__qualname__}" == "hookline.Timeout"
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, hl.Timeout)
    assert str(copy) == str(error)
    with pytest.raises(dist.DistStoreError) as again:
        hl.MemoryStore(SHORT).get("k")
    assert type(again.value) is type(error)


def test_errors_without_torch() -> None:
    code = """
        import sys
        import hookline as hl
        for call in (lambda: hl.MemoryStore(0.01).get("k"), lambda: hl.MemoryStore().queue_pop("q", False)):
            try:
                call()
            except hl.Error as error:
                assert type(error) in (hl.Timeout, hl.InvalidArgument), type(error)
            else:
                raise AssertionError("no error")
        assert "torch" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
