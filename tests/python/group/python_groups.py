"""A process group written in Python that forwards and records all calls."""

from typing import Any

import hookline as hl


class Forwarding(hl.ProcessGroup):
    """Overrides every operation with the arguments of torch.distributed, and forwards it to a native group."""

    def __init__(self, inner: hl.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def getBackendName(self) -> str:  # noqa: N802
        return "forwarding"

    def _forward(self, name: str, *args: Any) -> hl.Work:
        self.calls.append((name, args))
        return getattr(self.inner, name)(*args)

    def allreduce(self, tensors, opts=None):
        return self._forward("allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        return self._forward("allreduce_coalesced", tensors, opts)

    def reduce(self, tensors, opts=None):
        return self._forward("reduce", tensors, opts)

    def broadcast(self, tensors, opts=None):
        return self._forward("broadcast", tensors, opts)

    def allgather(self, output_lists, inputs, opts=None):
        return self._forward("allgather", output_lists, inputs, opts)

    def _allgather_base(self, output, given, opts=None):
        return self._forward("_allgather_base", output, given, opts)

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        return self._forward("allgather_coalesced", output_lists, inputs, opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return self._forward("allgather_into_tensor_coalesced", outputs, inputs, opts)

    def gather(self, output_lists, inputs, opts=None):
        return self._forward("gather", output_lists, inputs, opts)

    def scatter(self, outputs, input_lists, opts=None):
        return self._forward("scatter", outputs, input_lists, opts)

    def reduce_scatter(self, outputs, input_lists, opts=None):
        return self._forward("reduce_scatter", outputs, input_lists, opts)

    def reduce_scatter_single(self, output, given, opts=None):
        return self._forward("reduce_scatter_single", output, given, opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return self._forward("reduce_scatter_single_coalesced", outputs, inputs, opts)

    def alltoall(self, outputs, inputs, opts=None):
        return self._forward("alltoall", outputs, inputs, opts)

    def all_to_all_single(self, output, given, output_split_sizes=None, input_split_sizes=None, opts=None):
        return self._forward("all_to_all_single", output, given, output_split_sizes, input_split_sizes, opts)

    def send(self, tensors, dst, tag=0):
        return self._forward("send", tensors, dst, tag)

    def recv(self, tensors, src, tag=0):
        return self._forward("recv", tensors, src, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._forward("recv_anysource", tensors, tag)

    def barrier(self, opts=None):
        return self._forward("barrier", opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        return self._forward("monitored_barrier", timeout, wait_all_ranks)

    def new_group(self, ranks):
        self.calls.append(("new_group", (ranks,)))
        inner = self.inner.new_group(ranks)
        return None if inner is None else Forwarding(inner)

    def set_timeout(self, timeout):
        self.calls.append(("set_timeout", (timeout,)))

    def abort(self):
        self.calls.append(("abort", ()))

    def shutdown(self):
        self.calls.append(("shutdown", ()))
