from collections.abc import (
    Callable,
    Generator,
    Mapping,
    Sequence,
    Set
)
import datetime
from typing import Any, Generic, NoReturn, TypeVar

import hookline
import numpy.typing
from typing_extensions import CapsuleType


version: str = '0.1.0'

class Error(RuntimeError):
    """The base class of all hookline errors."""

    ranks: tuple[int, ...] = ()
    """The ranks that caused the error, ascending; () if unknown."""

class InvalidArgument(Error, ValueError):
    """An argument is invalid, or the call is not allowed in this state."""

class Unsupported(Error, NotImplementedError):
    """The operation, device or transport is not supported here."""

class Timeout(Error, TimeoutError):
    """An operation did not complete within its timeout."""

class PeerLost(Error, RuntimeError):
    """A peer died or its connection was lost."""

class Mismatch(Error, RuntimeError):
    """The ranks called different operations; no data was changed."""

class Aborted(Error, RuntimeError):
    """
    A rank failed, the group was aborted, or a future was destroyed before completion.
    """

class ResourceError(Error, OSError):
    """The operating system refused memory, a file or a socket."""

compiler: str = 'gcc 12.2.0, C++20, libstdc++ ABI cxx11'

def cpu_targets() -> list[str]:
    """
    Returns the SIMD targets that the kernels support on this processor, best last.
    """

T = TypeVar("T")

S = TypeVar("S")

class Future(Generic[T]):
    """
    The result of an asynchronous operation. Usable from any thread, and awaitable in asyncio.
    """

    def __init__(self) -> None:
        """Creates a future to be completed by set_result or set_exception."""

    def done(self) -> bool:
        """True if the future has a value or an error."""

    def wait(self, timeout: float | datetime.timedelta | None = None) -> T:
        """
        Waits for completion, and returns the value or raises the error. Raises Timeout after the timeout: seconds or a timedelta, by default 30 minutes.
        """

    def value(self) -> T:
        """Returns the value of a completed future, or raises its error."""

    def exception(self) -> BaseException | None:
        """Returns the error of a completed future, or None."""

    def set_result(self, result: T) -> None:
        """
        Completes the future with a value. Raises InvalidArgument if it is already completed.
        """

    def set_exception(self, result: BaseException) -> None:
        """
        Completes the future with an exception. wait() and value() raise this object, with its traceback.
        """

    def then(self, callback: Callable[[Future[T]], Future[S] | S]) -> Future[S]:
        """
        Calls callback(future) when this future is done, successfully or not. Returns a future of the callback's result or error; a returned Future is flattened. The callback runs on the completing thread, or immediately if this future is already done.
        """

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """
        Calls callback(future) when this future is done. Its exceptions go to sys.unraisablehook.
        """

    def __await__(self) -> Generator[Any, None, T]: ...

    def __repr__(self) -> str: ...

class Tensor:
    """A strided view of CPU memory that keeps the owner of the memory alive."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in elements."""

    @property
    def dtype(self) -> str:
        """The dtype's name in NumPy and torch, such as "float32" or "bfloat16"."""

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def itemsize(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def storage_offset(self) -> int:
        """The offset in elements."""

    @property
    def read_only(self) -> bool: ...

    def numel(self) -> int:
        """Returns the number of elements."""

    def data_ptr(self) -> int:
        """Returns the address of the first element."""

    def is_contiguous(self) -> bool:
        """True if the elements are in row-major order without gaps."""

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """
        Returns a view with another shape; one extent may be -1. Raises InvalidArgument if this requires a copy.
        """

    def flatten(self) -> Tensor:
        """
        Returns a one-dimensional view. Raises InvalidArgument if this requires a copy.
        """

    def as_read_only(self) -> Tensor:
        """Returns a read-only view."""

    def contiguous(self) -> Tensor:
        """Returns this tensor if it is contiguous, else a copy."""

    def clone(self) -> Tensor:
        """Returns a contiguous copy."""

    def copy_from(self, source: Any) -> None:
        """Copies from an array or tensor of the same shape and dtype."""

    def fill(self, value: float) -> None:
        """
        Sets every element. The value is a float, so integers beyond 2**53 are rounded.
        """

    def item(self) -> float | int | bool:
        """Returns the element of a tensor with exactly one element."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]: ...

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __getitem__(self, index: Any) -> Tensor:
        """
        Returns a view, by integers, slices with a positive step, and an ellipsis.
        """

    def __len__(self) -> int: ...

    def numpy(self) -> numpy.typing.NDArray[Any]:
        """
        Returns a NumPy array of the same memory. bfloat16 becomes the ml_dtypes type if installed, else uint16.
        """

    def __repr__(self) -> str: ...

def empty(shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
    """Returns a new uninitialized tensor, aligned to 64 bytes."""

def zeros(shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
    """Returns a new tensor of zeros."""

def full(shape: int | Sequence[int], fill_value: float, dtype: Any = 'float32') -> Tensor:
    """
    Returns a new tensor filled with a value. The value is a float, so integers beyond 2**53 are rounded.
    """

def asarray(source: Any) -> Tensor:
    """
    Returns a view, without a copy, of a NumPy array, a torch tensor, a DLPack capsule, or an object that exports DLPack or a buffer. A torch tensor that requires grad is treated as detached.
    """

def from_dlpack(source: Any) -> Tensor:
    """
    Returns a view of a DLPack capsule or an object with a __dlpack__ method.
    """

class Store:
    """
    A key-value store that processes share. Native code calls the overrides of derived classes.
    """

    def __init__(self) -> None: ...

    def set(self, key: str, value: str | bytes) -> None:
        """Sets the value of a key, bytes or str, replacing any old value."""

    def get(self, key: str) -> bytes:
        """
        Returns the value of a key. Waits up to the store's timeout for it to be set.
        """

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, which starts at 0, and returns its new value."""

    def wait(self, keys: Sequence[str], timeout: float | datetime.timedelta | None = None) -> None:
        """Waits until all keys are set."""

    def check(self, keys: Sequence[str]) -> bool:
        """True if all keys are set."""

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """
        Sets desired_value if the key has expected_value, or if the key is missing and expected_value is empty. Returns the resulting value of the key; expected_value if the key is missing and expected_value is not empty.
        """

    def delete_key(self, key: str) -> bool:
        """Deletes a key and returns True if it existed."""

    def num_keys(self) -> int:
        """Returns the number of keys."""

    def list_keys(self) -> list[str]:
        """Returns all keys in arbitrary order."""

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to the value of a key; a missing key counts as empty."""

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Returns the values of several keys. Waits for them as get does."""

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """
        Sets several keys. Not atomic: other clients may see only some of the values.
        """

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Appends an element to a queue."""

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """
        Removes and returns the oldest element of a queue. Waits for one; with block=False, raises InvalidArgument if the queue is empty.
        """

    def queue_len(self, key: str) -> int:
        """Returns the length of a queue."""

    def barrier(self, key: str, world_size: int, timeout: float | datetime.timedelta | None = None) -> None:
        """
        Blocks until world_size callers have reached the barrier with this key.
        """

    def has_extended_api(self) -> bool:
        """True if the store implements append, multi_get and multi_set natively."""

    def clone(self) -> Store:
        """
        Returns another store object for the same values, for use by another thread. It has its own timeout and, for a TCPStore, its own connection.
        """

    @property
    def timeout(self) -> datetime.timedelta:
        """The default timeout of waits."""

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """Sets the default timeout of get() and wait()."""

    def __repr__(self) -> str: ...

class MemoryStore(Store):
    """A store in the memory of this process."""

    def __init__(self, timeout: float | datetime.timedelta = 300.0) -> None: ...

class FileStore(Store):
    """A store in a file, for the processes of one host."""

    def __init__(self, file_name: str, world_size: int = -1, timeout: float | datetime.timedelta = 300.0) -> None: ...

    @property
    def path(self) -> str: ...

class PrefixStore(Store):
    """A view of another store that adds a prefix to all keys."""

    def __init__(self, prefix: str, store: Store | None) -> None: ...

    @property
    def prefix(self) -> str: ...

    @property
    def underlying_store(self) -> Store: ...

class TCPStore(Store):
    """A store that one process serves over TCP."""

    def __init__(self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, timeout: float | datetime.timedelta = 300.0, wait_for_workers: bool = True, multi_tenant: bool = False, master_listen_fd: int | None = None, use_libuv: bool = True, *, listen_on_all_interfaces: bool = False, token: str | None = None, allow_unauthenticated: bool = False, max_connections: int = 0, max_pending_connections: int = 0, handshake_timeout: float | datetime.timedelta = 10.0, max_keys: int = 524288, max_bytes: int = 268435456, max_value_bytes: int = 67108864, keepalive: float | datetime.timedelta = 60.0) -> None:
        """
        Takes the arguments of torch.distributed.TCPStore in the same order, and more. With `multi_tenant`, stores of one process share a server on one port. The server of the master takes ownership of `master_listen_fd`, a bound socket. `use_libuv` has no effect: there is one server implementation. With `token`, or HOOKLINE_TOKEN in the environment, client and server authenticate each other before the first request; an empty token selects PyTorch's unauthenticated protocol. A server reachable from other hosts requires a token, unless `allow_unauthenticated` (HOOKLINE_ALLOW_UNAUTHENTICATED=1) permits all clients.

        The `max_` options limit the resources of all clients of the server together; a client that exceeds a limit is refused or disconnected. 0 for `max_connections` means a share of the file descriptor limit. `keepalive` is the idle time in seconds, on both sides, after which TCP probes the other host.
        """

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def libuvBackend(self) -> bool:
        """The `use_libuv` argument of the constructor."""

    def ping(self) -> None:
        """Sends a request and waits for the server's reply."""

class Rendezvous:
    """The result of rendezvous(): the store and the ranks of this process."""

    @property
    def store(self) -> Store: ...

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def local_rank(self) -> int: ...

def rendezvous(init_method: str = 'env://', rank: int | None = None, world_size: int | None = None, timeout: float | datetime.timedelta = 300.0) -> Rendezvous:
    """
    Determines the store, the rank and the world size of this process, as torch.distributed does: env://, file:// or tcp://.
    """

class Codec:
    """Encodes float32 values into fewer bytes; created by make_codec."""

    @property
    def name(self) -> str: ...

    def encoded_bytes(self, count: int) -> int:
        """Returns the exact size in bytes of a message of count values."""

    def encode(self, values: Any, seed: int = 0, step: int = 0, bucket: int = 0, rank: int = 0) -> bytes:
        """
        Encodes a float32 array. seed, step, bucket and rank are the key of stochastic rounding.
        """

    def decode(self, message: bytes) -> Any:
        """
        Decodes a message to a NumPy array. Raises InvalidArgument if the message is corrupt.
        """

    def __repr__(self) -> str: ...

def make_codec(spec: str) -> Codec:
    """
    Creates a codec from its spec: 'fp16', 'bf16', 'int8(block=512)', 'int4(block=128, rounding=stochastic)'.
    """

def backend_names() -> list[str]:
    """
    Returns the backends that init_process_group accepts. Transports may have to be installed first: `hookline doctor` tests all of them.
    """

def available_bytes(root: str = '') -> int | None:
    """
    Returns the memory in bytes that shm can use, limited by the host and the control groups; None if unknown. root replaces / for /proc and /sys.
    """

class ReduceOp:
    """The operation with which a reduction combines elements."""

    @property
    def name(self) -> str:
        """The name as in C++, such as "sum" or "premul_sum"."""

    @property
    def factor(self) -> float:
        """The factor of PREMUL_SUM; 1 for other ops."""

    @staticmethod
    def PREMUL_SUM(factor: float) -> ReduceOp:
        """
        Returns an op that multiplies each rank's elements by the factor, then sums. Floating-point dtypes only.
        """

    def __eq__(self, other: object | None) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

    SUM: ReduceOp = ...

    AVG: ReduceOp = ...

    PRODUCT: ReduceOp = ...

    MIN: ReduceOp = ...

    MAX: ReduceOp = ...

    BAND: ReduceOp = ...

    BOR: ReduceOp = ...

    BXOR: ReduceOp = ...

class CallOptions:
    """The base class of the option objects of all collectives."""

class AllreduceOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, reduceOp: ReduceOp | str = ..., timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def reduceOp(self) -> ReduceOp: ...

    @reduceOp.setter
    def reduceOp(self, arg: ReduceOp | str, /) -> None: ...

class ReduceScatterOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, reduceOp: ReduceOp | str = ..., timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def reduceOp(self) -> ReduceOp: ...

    @reduceOp.setter
    def reduceOp(self, arg: ReduceOp | str, /) -> None: ...

class GatherOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, rootRank: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def rootRank(self) -> int: ...

    @rootRank.setter
    def rootRank(self, arg: int, /) -> None: ...

class ScatterOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, rootRank: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def rootRank(self) -> int: ...

    @rootRank.setter
    def rootRank(self, arg: int, /) -> None: ...

class AllgatherOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

class AllToAllOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

class BarrierOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

class ReduceOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, reduceOp: ReduceOp | str = ..., rootRank: int = 0, rootTensor: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def reduceOp(self) -> ReduceOp: ...

    @reduceOp.setter
    def reduceOp(self, arg: ReduceOp | str, /) -> None: ...

    @property
    def rootRank(self) -> int: ...

    @rootRank.setter
    def rootRank(self, arg: int, /) -> None: ...

    @property
    def rootTensor(self) -> int: ...

    @rootTensor.setter
    def rootTensor(self, arg: int, /) -> None: ...

class BroadcastOptions(CallOptions):
    """
    The options of an operation as in torch.distributed, passed as `opts` instead of keywords.
    """

    def __init__(self, rootRank: int = 0, rootTensor: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """The timeout; None for the group's default."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def rootRank(self) -> int: ...

    @rootRank.setter
    def rootRank(self, arg: int, /) -> None: ...

    @property
    def rootTensor(self) -> int: ...

    @rootTensor.setter
    def rootTensor(self, arg: int, /) -> None: ...

class Work:
    """
    A started operation. It keeps its arguments alive until it is done. Awaitable in asyncio. Derived classes can override wait(timeout), get_future() and is_completed().
    """

    def __init__(self, future: Future[Any] | None = None) -> None:
        """Creates a work that is done when the future is."""

    def wait(self, timeout: float | datetime.timedelta | None = None) -> bool:
        """
        Waits for the operation. Returns True, or raises its error. Raises Timeout after the timeout or the operation's own timeout; the group is then broken.
        """

    def get_future(self) -> Future[list[Any]]:
        """
        Returns a future of the list of the objects passed as outputs. Callbacks run on the group's callback thread.
        """

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """Awaits the operation in asyncio, and returns the list of outputs."""

    def is_completed(self) -> bool:
        """True if the operation is done, successfully or not."""

    def is_success(self) -> bool:
        """True if the operation is done and succeeded."""

    def exception(self) -> BaseException | None:
        """Returns the error; None while the operation runs and if it succeeded."""

    def result(self) -> list[Any]:
        """Returns the objects passed as outputs."""

    def source_rank(self) -> int:
        """Returns the sender of a received message, else -1."""

    @property
    def op_type(self) -> str:
        """The name of the method that started the operation."""

    @property
    def sequence_number(self) -> int:
        """
        The sequence number of the operation in the group on this rank, from 1.
        """

    @property
    def time_started(self) -> datetime.datetime: ...

    @property
    def time_finished(self) -> datetime.datetime | None:
        """The completion time; None while the operation runs."""

    def __repr__(self) -> str: ...

class WorkInfo:
    """Information about a completed operation, passed to completion hooks."""

    @property
    def op_type(self) -> str:
        """The name of the method that started the operation."""

    @property
    def seq(self) -> int:
        """
        The sequence number of the operation in the group on this rank, from 1.
        """

    @property
    def time_started(self) -> datetime.datetime: ...

    @property
    def time_finished(self) -> datetime.datetime: ...

    @property
    def active_duration(self) -> datetime.timedelta:
        """
        The time since its start, or since the end of the previous operation in its lane if that is later.
        """

    @property
    def lane(self) -> int: ...

    @property
    def bucket(self) -> int: ...

    @property
    def bytes(self) -> int:
        """
        The size in bytes of this rank's inputs, or of its outputs if it has no inputs.
        """

    @property
    def error(self) -> BaseException | None:
        """The error; None if the operation succeeded."""

    def __repr__(self) -> str: ...

class Capabilities:
    """The capabilities of a group's backend."""

    @property
    def lanes(self) -> int:
        """The number of lanes: sequences of collectives that run concurrently."""

    @property
    def shared_buffers(self) -> bool:
        """True if collectives use memory from empty() in place."""

class ProcessGroup:
    """
    A group of ranks that communicate. All ranks make the same calls in the same order. Methods that take a list of arrays also accept a single array. Arrays must not be modified until the work is done. A derived class can override any operation; native code then calls the override, as torch.distributed does.
    """

    def __init__(self, rank: int, size: int) -> None:
        """For derived classes."""

    def rank(self) -> int:
        """Returns the rank of this process in the group."""

    def getRank(self) -> int:
        """PyTorch's name for rank()."""

    def size(self) -> int:
        """Returns the number of ranks."""

    def getSize(self) -> int:
        """PyTorch's name for size()."""

    def backend_name(self) -> str:
        """
        Returns the name of the backend, such as 'shm'; for a group written in Python, the name of its class.
        """

    def getBackendName(self) -> str:
        """PyTorch's name for backend_name()."""

    def name(self) -> str:
        """Returns the name of the group; by default the name of its backend."""

    @property
    def group_name(self) -> str: ...

    def description(self) -> str:
        """Returns a description with backend, rank and size."""

    @property
    def group_desc(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def sequence_number(self) -> int:
        """The number of operations started on this rank."""

    @property
    def timeout(self) -> datetime.timedelta:
        """The default timeout of operations."""

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """Sets the default timeout of subsequent operations."""

    def abort(self, cause: str = 'abort() was called') -> None:
        """
        Fails all pending and subsequent operations on all ranks with Aborted, which names this rank and the cause. Does nothing for a group implemented in Python that does not override it.
        """

    def shutdown(self) -> None:
        """
        Leaves the group. Flushes sent data first, but does not wait for other ranks.
        """

    def empty(self, shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
        """
        Allocates a tensor in memory that the group's collectives use in place. numpy.asarray() of it does not copy.
        """

    def __repr__(self) -> str: ...

    def register_on_completion_hook(self, hook: Callable[[WorkInfo], object]) -> None:
        """
        Calls hook(info) with a WorkInfo after every subsequent operation, on the group's callback thread, in completion order. An exception fails the wait() of that operation, or wait_for_hooks(). For groups written in Python, only operations started by native code count.
        """

    def wait_for_hooks(self, timeout: float | datetime.timedelta | None = None) -> None:
        """
        Waits for all started operations and their hooks. Raises exceptions of hooks that no wait() has raised.
        """

    def allreduce(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None, codec: Codec | str | None = None) -> Work:
        """
        Reduces in place on all ranks; the default op is ReduceOp.SUM. With a codec or its spec, ranks send encoded values.
        """

    def allreduce_coalesced(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Reduces several arrays as one operation."""

    def reduce(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], root: int | CallOptions | None = None, op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Reduces in place on the root, by default rank 0."""

    def broadcast(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], root: int | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Broadcasts from the root, by default rank 0, to all ranks."""

    def allgather(self, output_lists: Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Gathers the inputs of all ranks. Outputs are a list of size() arrays, possibly in a list.
        """

    def allgather_into_tensor(self, output: hookline.ArrayLike, input: hookline.ArrayLike, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Gathers the inputs of all ranks into one output of size() blocks."""

    def all_gather_single(self, output: hookline.ArrayLike, input: hookline.ArrayLike, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Gathers the inputs of all ranks into one output of size() blocks."""

    def allgather_into_tensor_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Runs several allgather_into_tensor operations as one."""

    def all_gather_single_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Runs several allgather_into_tensor operations as one."""

    def allgather_coalesced(self, output_lists: Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Gathers several inputs at once. Outputs are one list per rank, with one array per input.
        """

    def gather(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, root: int | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Gathers the inputs of all ranks on the root. Other ranks pass None or [] as outputs.
        """

    def scatter(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, root: int | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Scatters the inputs of the root to all ranks. Other ranks pass None or [] as inputs.
        """

    def reduce_scatter(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], input_lists: Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Reduces, and scatters the result. Inputs are a list of size() arrays, possibly in a list.
        """

    def reduce_scatter_tensor(self, output: hookline.ArrayLike, input: hookline.ArrayLike, op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Reduces an input of size() blocks, and scatters the blocks of the result.
        """

    def reduce_scatter_single(self, output: hookline.ArrayLike, input: hookline.ArrayLike, op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Reduces an input of size() blocks, and scatters the blocks of the result.
        """

    def reduce_scatter_tensor_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Runs several reduce_scatter_tensor operations as one."""

    def reduce_scatter_single_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Runs several reduce_scatter_tensor operations as one."""

    def alltoall(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Sends one array to each rank and receives one from each rank."""

    def alltoall_base(self, output: hookline.ArrayLike, input: hookline.ArrayLike, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Exchanges blocks with all ranks. Split sizes are rows of dimension 0 per rank; without them all blocks are equal.
        """

    def all_to_all_single(self, output: hookline.ArrayLike, input: hookline.ArrayLike, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Exchanges blocks with all ranks. Split sizes are rows of dimension 0 per rank; without them all blocks are equal.
        """

    def send(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], dst: int, tag: int = 0, timeout: float | datetime.timedelta | CallOptions | None = None) -> Work:
        """
        Sends to rank dst. Messages match by peer, tag and order, independently of collectives.
        """

    def recv(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], src: int, tag: int = 0, timeout: float | datetime.timedelta | CallOptions | None = None) -> Work:
        """Receives from rank src with this tag into the arrays."""

    def recv_anysource(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], tag: int = 0, timeout: float | datetime.timedelta | CallOptions | None = None) -> Work:
        """
        Receives from any rank with this tag. Work.source_rank() returns the sender.
        """

    def barrier(self, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Completes when all ranks have called it."""

    def monitored_barrier(self, timeout: float | datetime.timedelta | CallOptions | None = None, wait_all_ranks: bool = False) -> None:
        """
        A blocking barrier whose error names the first missing rank; with wait_all_ranks, all missing ranks.
        """

    def new_group(self, ranks: Sequence[int], timeout: float | datetime.timedelta | None = None) -> ProcessGroup | None:
        """
        Creates a group of some of the ranks, in the given order; returns None on other ranks. Collective: all ranks of this group call it.
        """

    def split_group(self, ranks: Sequence[int], timeout: float | datetime.timedelta | None = None) -> ProcessGroup | None:
        """
        Creates a group of some of the ranks, in the given order; returns None on other ranks. Collective: all ranks of this group call it.
        """

    def split(self, color: int, key: int = 0) -> ProcessGroup | None:
        """
        Creates one group per color, with ranks ordered by key, then by rank; returns None for a negative color.
        """

    def start_coalescing(self, device: object | None = None) -> None:
        """
        Begins coalescing: subsequent operations share one work, until end_coalescing().
        """

    def end_coalescing(self, device: object | None = None) -> Work:
        """
        Ends coalescing. Returns the work of all operations since start_coalescing(), done when all of them are.
        """

def is_initialized(object: object) -> bool:
    """True for an object of this module whose __init__ has run."""

def default_group() -> ProcessGroup:
    """Returns the last group from init_process_group, while it lives."""

def init_process_group(backend: str | None = None, init_method: str = 'env://', rank: int | None = None, world_size: int | None = None, timeout: float | datetime.timedelta | None = None, store: Store | None = None, backend_options: Mapping[str, str] = {}) -> ProcessGroup:
    """
    Runs the rendezvous of all processes of the job and returns their group. The default backend is shm on one host, and hierarchical on several hosts, with the transport mpi under an MPI launcher and gloo otherwise. The timeout, by default 30 minutes, limits the rendezvous and is the default of all operations. backend_options: shm takes "wait_policy", gloo "interface" and "address", mpi "communicator", hierarchical "transport" and the options of that transport.
    """

def make_thread_groups(size: int, timeout: float | datetime.timedelta | None = None) -> list[ProcessGroup]:
    """
    Creates a group of ranks that are threads of this process. Returns one ProcessGroup per rank, in rank order.
    """

def with_collective_checks(group: ProcessGroup, store: Store) -> ProcessGroup:
    """
    Wraps `group`: collectives start only when all ranks have called the same one, with the same dtype, shapes and root; otherwise all ranks raise a Mismatch that lists all calls. All ranks share the store.
    """

def with_nan_checks(group: ProcessGroup) -> ProcessGroup:
    """
    Wraps `group`: before sending a NaN or an infinity, raises InvalidArgument, naming rank, operation, tensor and index, and aborts the group.
    """

def with_cross_check(group: ProcessGroup, other: ProcessGroup, tolerance: float = 0.0) -> ProcessGroup:
    """
    Runs every operation on two groups of the same ranks, and fails at the first element that differs by more than the relative tolerance; 0 requires bitwise equality.
    """

def with_flight_recorder(group: ProcessGroup, capacity: int = 1024, directory: str | None = None, name: str | None = None) -> ProcessGroup:
    """
    Wraps `group`: records its last operations, and dumps them as JSON on an error, on SIGUSR1 and by dump_flight_records(). `hookline debug DIR` reads the dumps of all ranks. The default directory is HOOKLINE_DEBUG_DIR, or hookline-debug.
    """

def flight_records(group: ProcessGroup) -> dict[str, Any]:
    """Returns the records of a group with a flight recorder."""

def dump_flight_records(group: ProcessGroup, path: str | None = None) -> str:
    """
    Writes the records of a group with a flight recorder to a file and returns its path.
    """

class GradBucket:
    """
    The gradients of some parameters in one flat buffer, passed to a communication hook.
    """

    def __init__(self, buffer: Any, sizes: Sequence[int | Sequence[int]] | None = None, parameters: Sequence[Any] | None = None, index: int = 0, bucket_count: int = 1, sparse_grad_indices: Any | None = None) -> None:
        """
        Creates a bucket from a flat array, to test a hook. Without sizes it holds one gradient.
        """

    def index(self) -> int:
        """Returns the position of this bucket in the launch order of the step."""

    def bucket_count(self) -> int:
        """Returns the number of buckets of the step."""

    def is_last(self) -> bool:
        """True for the last bucket of the step."""

    def buffer(self) -> Any:
        """Returns the flat buffer: a NumPy array, or a torch tensor under torch."""

    def set_buffer(self, buffer: Any) -> None:
        """
        Replaces the buffer by one of the same number of elements; its dtype may differ.
        """

    def set_contribution(self, contribution: Any) -> None:
        """
        Reports this rank's gradients as the other ranks decode them, as a flat array. error_feedback keeps the difference to the hook's input as the residual. Call once per run, before the hook's Future completes; the values are copied.
        """

    def wants_contribution(self) -> bool:
        """True if an error_feedback wrapper requires set_contribution."""

    def gradients(self) -> list[Any]:
        """Returns views of the buffer with the parameters' shapes."""

    def parameters(self) -> list[Any]:
        """Returns the parameters of these gradients."""

    def offsets(self) -> list[int]:
        """Returns the offset of each gradient in the buffer, in elements."""

    def lengths(self) -> list[int]:
        """Returns the number of elements of each gradient."""

    def sizes(self) -> list[tuple[int, ...]]:
        """Returns the shape of each gradient."""

    def sparse_grad_indices(self) -> Any:
        """Returns the row indices of a sparse gradient, or None."""

    def __repr__(self) -> str: ...

class CommHook:
    """A native communication hook; created by make_hook."""

    @property
    def name(self) -> str: ...

    def __call__(self, state: Any, bucket: GradBucket) -> Future[Any]:
        """
        Runs the hook on a bucket, with the signature of a Python hook. Ignores the state.
        """

    def stats(self) -> list[dict[str, Any]]:
        """
        What the last step's buckets cost: bytes sent, ratio, encode_time, decode_time, residual_norm, and relative_error behind '… | compare'.
        """

    def state_dict(self) -> dict[str, Any]:
        """
        Returns what the hook keeps between steps on this rank: its name, and its state as bytes.
        """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """
        Restores the state from state_dict(). Raises InvalidArgument for the state of another hook, model, rank or number of ranks. Does not execute code from the state.
        """

    def __or__(self, spec: str) -> CommHook:
        """
        Wraps this hook with the wrappers of a spec: hook | 'error_feedback'. Do not use the inner hook by itself at the same time.
        """

    def __reduce__(self) -> NoReturn: ...

    def __repr__(self) -> str: ...

def make_hook(hook: str | Callable[[Any, GradBucket], Any], group: ProcessGroup, state: Any = None, *, reports_contribution: bool = False, for_torch: bool = False) -> CommHook:
    """
    Creates a hook from a hook spec, a name with options in parentheses followed by wrappers: 'int8(block=512) | error_feedback'; or from a function hook(state, bucket), whose default state is the group. Pass reports_contribution if the function calls bucket.set_contribution in every run, as error_feedback requires. With for_torch, buckets have torch tensors.
    """

def register_factory(name: str, description: str) -> None:
    """The native part of hookline.register_hook."""

def unregister_factory(name: str) -> None:
    """The native part of hookline.unregister_hook."""

def registered_hooks(base_only: bool = False) -> dict[str, str]:
    """
    Returns the registered hooks with their descriptions; with base_only, without pure wrappers.
    """

def hook_options(name: str) -> dict[str, tuple[str, str]]:
    """
    Returns the options of a registered hook: the default value and the expected values of each.
    """

class PowerSGDState:
    """The options and the state of PowerSGD for one model."""

    def __init__(self, process_group: ProcessGroup | None = None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000, min_compression_rate: float = 2.0, use_error_feedback: bool = True, warm_start: bool = True, orthogonalization_epsilon: float = 0.0, random_seed: int = 0, compression_stats_logging_frequency: int = 10000, batch_tensors_with_same_shape: bool = False, wire: str = 'fp32') -> None: ...

    @property
    def process_group(self) -> ProcessGroup | None:
        """The group to reduce over; None for the group of the model."""

    @process_group.setter
    def process_group(self, group: ProcessGroup | None) -> None: ...

    @property
    def wire(self) -> str:
        """The dtype in which the factors are sent: fp32, fp16 or bf16."""

    @wire.setter
    def wire(self, arg: str, /) -> None: ...

    def __getstate__(self) -> dict[str, Any]: ...

    def __setstate__(self, state: dict[str, Any]) -> None: ...

    @property
    def matrix_approximation_rank(self) -> int:
        """The number of columns of a factor."""

    @matrix_approximation_rank.setter
    def matrix_approximation_rank(self, arg: int, /) -> None: ...

    @property
    def start_powerSGD_iter(self) -> int:
        """The number of initial steps with plain allreduce."""

    @start_powerSGD_iter.setter
    def start_powerSGD_iter(self, arg: int, /) -> None: ...

    @property
    def min_compression_rate(self) -> float:
        """The minimum rate for a tensor to be compressed."""

    @min_compression_rate.setter
    def min_compression_rate(self, arg: float, /) -> None: ...

    @property
    def use_error_feedback(self) -> bool:
        """If True, adds the residual in the next step."""

    @use_error_feedback.setter
    def use_error_feedback(self, arg: bool, /) -> None: ...

    @property
    def warm_start(self) -> bool:
        """If True, a step starts with the factor of the previous step."""

    @warm_start.setter
    def warm_start(self, arg: bool, /) -> None: ...

    @property
    def orthogonalization_epsilon(self) -> float:
        """A value added to the norms of the columns."""

    @orthogonalization_epsilon.setter
    def orthogonalization_epsilon(self, arg: float, /) -> None: ...

    @property
    def compression_stats_logging_frequency(self) -> int:
        """The number of steps between log messages."""

    @compression_stats_logging_frequency.setter
    def compression_stats_logging_frequency(self, arg: int, /) -> None: ...

    @property
    def batch_tensors_with_same_shape(self) -> bool:
        """Has no effect: the matrices of a bucket are always sent together."""

    @batch_tensors_with_same_shape.setter
    def batch_tensors_with_same_shape(self, arg: bool, /) -> None: ...

    @property
    def iter(self) -> int:
        """The number of steps so far."""

    @property
    def total_numel_before_compression(self) -> int: ...

    @property
    def total_numel_after_compression(self) -> int: ...

    @property
    def next_stats_report(self) -> int:
        """The next step that logs the totals."""

    @property
    def error_dict(self) -> dict[int, Any]:
        """Copies of the residuals, by bucket."""

    @property
    def p_memory_dict(self) -> dict[int, Any]:
        """Copies of the left factors, by bucket, in column-major order."""

    @property
    def q_memory_dict(self) -> dict[int, Any]:
        """Copies of the right factors, by bucket, in column-major order."""

    @property
    def random_seed(self) -> int: ...

    @property
    def rng(self) -> tuple[int, int]:
        """
        The seed and the step, which with the parameter's name are the key of the random factors.
        """

    def compression_stats(self) -> tuple[float, int, int]:
        """
        Returns the rate, and the number of elements before and after compression, over all compressed steps.
        """

def powersgd_hook(state: PowerSGDState, batched: bool, group: ProcessGroup | None = None) -> CommHook:
    """Creates the native hook of a state."""

class PostLocalSGDState:
    """
    The state of post_localSGD_hook, which averages gradients over process_group in the first start_localSGD_iter steps, then over subgroup, or not at all without post_local_gradient_allreduce.
    """

    def __init__(self, process_group: ProcessGroup | None, subgroup: ProcessGroup | None, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True) -> None:
        """
        The default process_group is the default group, the default subgroup the ranks of this host. Collective.
        """

    @property
    def process_group(self) -> ProcessGroup: ...

    @property
    def subgroup(self) -> ProcessGroup | None: ...

    @property
    def start_localSGD_iter(self) -> int: ...

    @property
    def post_local_gradient_allreduce(self) -> bool: ...

    @property
    def iter(self) -> int:
        """The number of started steps. Set it when resuming a run."""

    @iter.setter
    def iter(self, arg: int, /) -> None: ...

    def __repr__(self) -> str: ...

def make_post_local_sgd_hook(state: PostLocalSGDState) -> CommHook:
    """Creates the native hook of a state, equivalent to post_localSGD_hook."""

class Optimizer:
    """A native optimizer with the algorithms of torch.optim."""

    @property
    def name(self) -> str: ...

    @property
    def lr(self) -> float:
        """The learning rate. A new value applies from the next step."""

    @lr.setter
    def lr(self, arg: float, /) -> None: ...

    @property
    def options(self) -> dict[str, float | bool]: ...

    def set_options(self, **options: float) -> None:
        """Changes some options from the next step on."""

    def step(self, params: Any, grads: Any, scale: float = 1.0) -> None:
        """
        Updates the parameters in place. params and grads are mappings by name or sequences; None gradients are skipped. Gradients are multiplied by scale.
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns the options and a copy of the state of each parameter."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the options and state from state_dict()."""

    def __reduce__(self) -> NoReturn: ...

    def __repr__(self) -> str: ...

class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD."""

    def __init__(self, lr: float = 0.001, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False) -> None: ...

class Adam(Optimizer):
    """Adam, as torch.optim.Adam."""

    def __init__(self, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False) -> None: ...

class AdamW(Optimizer):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    def __init__(self, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.01, amsgrad: bool = False, *, maximize: bool = False) -> None: ...

def make_optimizer(spec: str) -> Optimizer:
    """
    Creates an optimizer from its spec: 'sgd(lr=0.1, momentum=0.9)', 'adam', 'adamw(lr=1e-3)'.
    """

def overlap(hook: CommHook | str | Callable[[Any, GradBucket], Any], optimizer: Any, clip_norm: float | None = None, *, group: ProcessGroup | None = None, state: Any = None) -> CommHook:
    """
    Returns a hook that steps each bucket's parameters after communication, while later buckets still communicate. The optimizer is an Optimizer or its spec, a function of a bucket, or an object with step_param(param, grad). With clip_norm, the steps wait for all gradients, whose total norm is limited to clip_norm. A hook spec or a function is made a hook of the group, by default the default group, with the state, by default the group.
    """

class ModelAverager:
    """Counts training steps and averages the parameters periodically."""

    def average_parameters(self, params: Any) -> bool:
        """
        Call once per step, after the optimizer, on all ranks, with arrays, a mapping to arrays, or param_groups. If an average is due, replaces the parameters by their mean over the ranks and returns True.
        """

    @property
    def step(self) -> int:
        """The number of counted steps. Set it when resuming a run."""

    @step.setter
    def step(self, arg: int, /) -> None: ...

    @property
    def warmup_steps(self) -> int: ...

    @property
    def process_group(self) -> ProcessGroup: ...

class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps after the warm-up."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None: ...

    @property
    def period(self) -> int: ...

class HierarchicalModelAverager(ModelAverager):
    """
    Averages over groups of several sizes, each with its period: {2: 2, 8: 4} averages over 2 ranks every 2 steps and over 4 ranks every 8 steps.
    """

    def __init__(self, period_group_size_dict: Mapping[int, int] | None = None, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None: ...

    @property
    def period_process_group_dict(self) -> dict[int, ProcessGroup]: ...

def local_group(group: ProcessGroup | None = None) -> ProcessGroup:
    """Creates the group of the ranks on this host. Collective."""

class Reducer:
    """Averages gradients over the ranks of a group during the backward pass."""

    def __init__(self, params: Sequence[tuple[str, Any]], process_group: ProcessGroup, hook: object | None = None, state: object | None = None, bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, static_graph: bool = False, reduction: str = 'mean', broadcast_parameters: bool = True, timeout: float | datetime.timedelta | None = None, sparse: Set[str] = ..., ignored: Set[str] = ..., reduce_last: Set[str] = ..., frozen: Set[str] = ..., buffers: Sequence[tuple[str, Any]] | None = None, buckets: Sequence[Sequence[int]] | None = None, for_torch: bool = False, optimizer: object | None = None, clip_norm: float | None = None) -> None: ...

    def mark_ready(self, parameter: int | str, gradient: Any | None = None) -> None:
        """
        Marks the gradient of a parameter as ready. It is in gradient(parameter), or in the given array, which finalize() overwrites with the mean.
        """

    def mark_ready_sparse(self, parameter: int | str, indices: Any, values: Any) -> None:
        """
        Marks the gradient of a sparse parameter as ready: row indices (int64) and the rows.
        """

    def mark_unused(self, parameter: int | str, gradient: Any) -> None:
        """
        Marks a parameter that this backward pass does not use, but that has a gradient from earlier passes. The gradient takes part in the mean, and gets it if any rank marks the parameter as ready. With static_graph, call this in later steps before the first mark_ready().
        """

    def mark_unused_sparse(self, parameter: int | str, indices: Any, values: Any) -> None:
        """mark_unused() for a sparse parameter."""

    def discard_step(self) -> None:
        """
        Discards the marks of a failed backward pass. Valid only before any of its buckets is launched.
        """

    def finalize(self) -> None:
        """Blocks until all buckets are reduced."""

    def gradient(self, parameter: int | str) -> Tensor:
        """Returns the view of a parameter's gradient in its bucket."""

    def copy_gradient(self, parameter: int | str, destination: Any) -> None:
        """Copies a parameter's mean into an array, after finalize()."""

    def sparse_gradient(self, parameter: int | str) -> tuple[Tensor, Tensor]:
        """Returns the reduced rows of a sparse parameter: indices and values."""

    def replace_comm_hook(self, state: object | None, hook: object | None) -> None:
        """
        Replaces the hook from the next step on, by a hook spec, a CommHook, or a function with its state.
        """

    @property
    def comm_hook(self) -> CommHook:
        """The current hook, for its stats() and state_dict()."""

    def begin_no_sync(self) -> None:
        """Accumulates gradients locally until end_no_sync()."""

    def end_no_sync(self) -> None:
        """Ends begin_no_sync(). The next step reduces the accumulated gradients."""

    def set_weight(self, weight: float) -> None:
        """
        Sets the weight of this rank's gradients in subsequent means. Collective.
        """

    @property
    def step_id(self) -> int | None:
        """
        A user-defined number for subsequent steps, from 0 to 2**32 - 1; None for none. If it differs between ranks, the first bucket of a step fails with a Mismatch.
        """

    @step_id.setter
    def step_id(self, id: int | None) -> None: ...

    def begin_join(self, divide_by_initial_world_size: bool = True) -> None:
        """Allows different numbers of steps per rank until end_join()."""

    def end_join(self) -> None:
        """
        Takes part in the steps of other ranks until all ranks have called end_join().
        """

    def buckets(self) -> list[list[int]]:
        """
        Returns the parameter indices of each bucket; final from the second step on.
        """

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the last step."""

def broadcast_coalesced(group: ProcessGroup, tensors: object, buffer_size: int = 262144000, root: int = 0) -> None:
    """
    Broadcasts the root's arrays to all ranks, in buffers of at most buffer_size bytes.
    """

def group_to_capsule(group: ProcessGroup) -> CapsuleType:
    """
    Returns a capsule with a group, for another extension module that links to this library.
    """

def group_from_capsule(capsule: object) -> ProcessGroup:
    """Returns the group of a capsule."""

def store_from_capsule(capsule: object) -> Store:
    """Returns the store of a capsule."""

def hook_to_capsule(hook: CommHook) -> CapsuleType:
    """Returns a capsule with a hook."""

def error_to_python() -> CapsuleType:
    """
    Returns a capsule with the function that creates the Python exception for a C++ error.
    """

def owner_of_object() -> CapsuleType:
    """
    Returns a capsule with the function that makes a Python object the owner of a tensor.
    """

def calls_python(group: ProcessGroup) -> bool:
    """True if operations of the group call Python methods."""

def group_of_hook(hook: CommHook) -> ProcessGroup:
    """Returns the group of a hook."""

def hook_from_capsule(capsule: object, group: ProcessGroup) -> CommHook:
    """Returns the hook of a capsule; group is the hook's group."""
