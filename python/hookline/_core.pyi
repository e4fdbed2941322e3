from collections.abc import (
    Callable,
    Generator,
    Mapping,
    Sequence,
    Set
)
import datetime
from typing import Any, Generic, TypeVar

import hookline
import numpy.typing
from typing_extensions import CapsuleType


version: str = '0.1.0'

class Error(RuntimeError):
    """The base of every error of hookline."""

    ranks: tuple[int, ...] = ()
    """The ranks that the error is about, ascending; () where they are not known."""

class InvalidArgument(Error, ValueError):
    """The caller's own mistake."""

class Unsupported(Error, NotImplementedError):
    """An operation, device or engine that is not to be had here."""

class Timeout(Error, TimeoutError):
    """Something did not happen in time."""

class PeerLost(Error, RuntimeError):
    """A peer died or its connection broke."""

class Mismatch(Error, RuntimeError):
    """The ranks called different operations; no data was changed."""

class Aborted(Error, RuntimeError):
    """
    A rank failed, the group was aborted, or a future was dropped unfulfilled.
    """

class ResourceError(Error, OSError):
    """What the operating system refused: memory, files, sockets."""

compiler: str = 'gcc 12.2.0, C++20, libstdc++ ABI cxx11'

def cpu_targets() -> list[str]:
    """
    The instruction sets that the loops can use on this processor, best last.
    """

T = TypeVar("T")

S = TypeVar("S")

class Future(Generic[T]):
    """
    A value that comes later. May be used from any thread, and awaited in asyncio.
    """

    def __init__(self) -> None:
        """A future that is completed by set_result or set_exception."""

    def done(self) -> bool:
        """Whether there is an outcome, be it a value or an error."""

    def wait(self, timeout: float | datetime.timedelta | None = None) -> T:
        """
        Waits for the outcome and returns the value or raises the error. Raises Timeout where neither is there in time: seconds or a timedelta, 30 minutes where not given.
        """

    def value(self) -> T:
        """The value of a completed future, or its error raised."""

    def exception(self) -> BaseException | None:
        """The error of a completed future, or None."""

    def set_result(self, result: T) -> None:
        """Completes the future. InvalidArgument where it has an outcome already."""

    def set_exception(self, result: BaseException) -> None:
        """
        Fails the future with an exception, which wait() and value() raise as it is, with its traceback.
        """

    def then(self, callback: Callable[[Future[T]], Future[S] | S]) -> Future[S]:
        """
        Calls callback(future) once this is done, failed or not, and returns a future of what that returns (a Future is taken over, not nested) or raises. Runs in the thread that completes this future, or at once.
        """

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """
        Calls callback(future) once this is done. What it raises goes to sys.unraisablehook.
        """

    def __await__(self) -> Generator[Any, None, T]: ...

    def __repr__(self) -> str: ...

class Tensor:
    """
    A strided view of memory on the CPU that keeps whoever owns the memory alive.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def dtype(self) -> str:
        """
        The name that NumPy and torch know it by, as in "float32" or "bfloat16".
        """

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
        """In elements."""

    @property
    def read_only(self) -> bool: ...

    def numel(self) -> int:
        """How many elements there are."""

    def data_ptr(self) -> int:
        """The address of the first element."""

    def is_contiguous(self) -> bool:
        """Whether the elements lie row by row without gaps."""

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """
        The same elements under another shape; one extent may be -1. InvalidArgument where that takes a copy.
        """

    def flatten(self) -> Tensor:
        """A view of one dimension. InvalidArgument where that takes a copy."""

    def as_read_only(self) -> Tensor:
        """The same memory, not to be written through this view."""

    def contiguous(self) -> Tensor:
        """This tensor where it is contiguous, else a copy that is."""

    def clone(self) -> Tensor:
        """A contiguous copy, in memory of its own."""

    def copy_from(self, source: Any) -> None:
        """Copies from an array or tensor of the same shape and dtype."""

    def fill(self, value: float) -> None:
        """
        Sets every element to the value, a float: integers beyond 2**53 are rounded.
        """

    def item(self) -> float | int | bool:
        """The one element of a tensor that has just one."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]: ...

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __getitem__(self, index: Any) -> Tensor:
        """A view: by numbers, slices with a positive step, and an ellipsis."""

    def __len__(self) -> int: ...

    def numpy(self) -> numpy.typing.NDArray[Any]:
        """
        A NumPy array of the same memory. bfloat16 comes as that of ml_dtypes where it is installed, else as uint16.
        """

    def __repr__(self) -> str: ...

def empty(shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
    """A new tensor, aligned to 64 bytes, with whatever the memory holds."""

def zeros(shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
    """A new tensor of zeros."""

def full(shape: int | Sequence[int], fill_value: float, dtype: Any = 'float32') -> Tensor:
    """
    A new tensor, every element of which is the value, a float: integers beyond 2**53 are rounded.
    """

def asarray(source: Any) -> Tensor:
    """
    A view, without a copy, of a NumPy array, a torch tensor, a DLPack capsule, or whatever exports DLPack or a buffer. A torch tensor that requires a gradient is taken as if detached.
    """

def from_dlpack(source: Any) -> Tensor:
    """The same for capsules and objects with a __dlpack__ method."""

class Store:
    """
    A small key-value table that processes share. A class may derive from it; native code then calls its methods.
    """

    def __init__(self) -> None: ...

    def set(self, key: str, value: str | bytes) -> None:
        """
        Puts a value, bytes or text, under a key, in the place of one that is there.
        """

    def get(self, key: str) -> bytes:
        """
        The value of a key, waiting up to the store's timeout for it to be set.
        """

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, which starts at 0, and returns the sum."""

    def wait(self, keys: Sequence[str], timeout: float | datetime.timedelta | None = None) -> None:
        """Waits until all keys are set."""

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are set now."""

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """
        Sets the desired value where the key has the expected one, or is missing and the expected one is empty. Returns the value afterwards; for a missing key and another expected value, that one.
        """

    def delete_key(self, key: str) -> bool:
        """Whether there was such a key."""

    def num_keys(self) -> int:
        """How many keys have a value."""

    def list_keys(self) -> list[str]:
        """The keys that have a value, in no particular order."""

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to the value of a key; a missing one starts empty."""

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values in the order of the keys, waiting for them as get does."""

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """
        Sets each key to the value in its place; others may see some of them first.
        """

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Puts an element at the end of the queue of a key."""

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """
        The oldest element, waiting for one; with block=False, InvalidArgument where there is none.
        """

    def queue_len(self, key: str) -> int:
        """How many elements the queue of a key has."""

    def barrier(self, key: str, world_size: int, timeout: float | datetime.timedelta | None = None) -> None:
        """Returns when world_size callers have come to the barrier of this name."""

    def has_extended_api(self) -> bool:
        """
        True if append, multi_get and multi_set are implemented by the store itself.
        """

    def clone(self) -> Store:
        """
        Returns another store object on the same values, with its own timeout and, for a TCPStore, its own connection: for another thread.
        """

    @property
    def timeout(self) -> datetime.timedelta:
        """How long waits last that are given no time."""

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """How long get, and wait without a time of its own, will wait."""

    def __repr__(self) -> str: ...

class MemoryStore(Store):
    """A store in the memory of this process."""

    def __init__(self, timeout: float | datetime.timedelta = 300.0) -> None: ...

class FileStore(Store):
    """A store in a file that the processes of one host share."""

    def __init__(self, file_name: str, world_size: int = -1, timeout: float | datetime.timedelta = 300.0) -> None: ...

    @property
    def path(self) -> str: ...

class PrefixStore(Store):
    """A store whose keys are those of another one under a prefix."""

    def __init__(self, prefix: str, store: Store | None) -> None: ...

    @property
    def prefix(self) -> str: ...

    @property
    def underlying_store(self) -> Store: ...

class TCPStore(Store):
    """A store that one process keeps and others reach over TCP."""

    def __init__(self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, timeout: float | datetime.timedelta = 300.0, wait_for_workers: bool = True, multi_tenant: bool = False, master_listen_fd: int | None = None, use_libuv: bool = True, *, listen_on_all_interfaces: bool = False, token: str | None = None, allow_unauthenticated: bool = False, max_connections: int = 0, max_pending_connections: int = 0, handshake_timeout: float | datetime.timedelta = 10.0, max_keys: int = 524288, max_bytes: int = 268435456, max_value_bytes: int = 67108864, keepalive: float | datetime.timedelta = 60.0) -> None:
        """
        The arguments of torch.distributed.TCPStore, in its order, and more. Tenants (`multi_tenant`) of one process share a server on one port. The master's server owns `master_listen_fd`, a bound socket. `use_libuv` has no effect: there is one server. With `token`, or HOOKLINE_TOKEN in the environment, both sides prove that they have the same one before the first request; an empty one is PyTorch's plain protocol. A server that other hosts reach needs a token, unless `allow_unauthenticated` (HOOKLINE_ALLOW_UNAUTHENTICATED=1) says that it serves any client.

        The last options limit what all clients of the server use together; a client that exceeds one is refused or disconnected. 0 connections stand for a share of the limit on file descriptors. `keepalive` is for both sides: the seconds of silence after which TCP asks whether the other host is still there.
        """

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def libuvBackend(self) -> bool:
        """The `use_libuv` that the constructor was given."""

    def ping(self) -> None:
        """Returns when the server has answered."""

class Rendezvous:
    """What a process learns at a rendezvous."""

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
    Finds the store, the rank and the size of this process, as torch.distributed does: env://, file:// or tcp://.
    """

class Codec:
    """Packs float32 values into fewer bytes; made by make_codec."""

    @property
    def name(self) -> str: ...

    def encoded_bytes(self, count: int) -> int:
        """The exact size of the message of so many values."""

    def encode(self, values: Any, seed: int = 0, step: int = 0, bucket: int = 0, rank: int = 0) -> bytes:
        """
        The message of a float32 array. The numbers are what stochastic rounding draws by.
        """

    def decode(self, message: bytes) -> Any:
        """
        The values of a message, as a NumPy array. InvalidArgument for damaged bytes.
        """

    def __repr__(self) -> str: ...

def make_codec(text: str) -> Codec:
    """
    The codec of a text: 'fp16', 'bf16', 'int8(block=512)', 'int4(block=128, rounding=stochastic)'.
    """

def backend_names() -> list[str]:
    """
    The backends that init_process_group knows. One that is an engine of its own may have to be installed first: `hookline doctor` tries them all.
    """

def available_bytes(root: str = '') -> int | None:
    """
    The memory that shm may take, on the host and in the control groups, whose files are looked for below root; None where nothing is known.
    """

class ReduceOp:
    """How a reduction combines the ranks' elements."""

    @property
    def name(self) -> str:
        """As in C++: "sum", "premul_sum"."""

    @property
    def factor(self) -> float:
        """What PREMUL_SUM multiplies by; 1 for every other op."""

    @staticmethod
    def PREMUL_SUM(factor: float) -> ReduceOp:
        """
        Multiplies every rank's elements by the factor, then adds. Floating-point dtypes only.
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
    """What the option objects of all collectives have in common."""

class AllreduceOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, reduceOp: ReduceOp | str = ..., timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def reduceOp(self) -> ReduceOp: ...

    @reduceOp.setter
    def reduceOp(self, arg: ReduceOp | str, /) -> None: ...

class ReduceScatterOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, reduceOp: ReduceOp | str = ..., timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def reduceOp(self) -> ReduceOp: ...

    @reduceOp.setter
    def reduceOp(self, arg: ReduceOp | str, /) -> None: ...

class GatherOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, rootRank: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def rootRank(self) -> int: ...

    @rootRank.setter
    def rootRank(self, arg: int, /) -> None: ...

class ScatterOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, rootRank: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

    @property
    def rootRank(self) -> int: ...

    @rootRank.setter
    def rootRank(self, arg: int, /) -> None: ...

class AllgatherOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

class AllToAllOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

class BarrierOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

    @timeout.setter
    def timeout(self, timeout: float | datetime.timedelta | None) -> None: ...

class ReduceOptions(CallOptions):
    """
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, reduceOp: ReduceOp | str = ..., rootRank: int = 0, rootTensor: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

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
    Options of an operation as torch.distributed has them, to be passed as `opts` in the place of keywords.
    """

    def __init__(self, rootRank: int = 0, rootTensor: int = 0, timeout: float | datetime.timedelta | None = None) -> None: ...

    @property
    def timeout(self) -> datetime.timedelta | None:
        """None for the group's own."""

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
    An operation that was started. The objects passed to it stay alive until it is done. May be awaited in asyncio. A class may derive from it and have its own wait(timeout), get_future() and is_completed().
    """

    def __init__(self, future: Future[Any] | None = None) -> None:
        """A work that is done when the future is."""

    def wait(self, timeout: float | datetime.timedelta | None = None) -> bool:
        """
        Returns True when the operation is done and raises what it failed with. Raises Timeout when the time, or the operation's own, is up: the group is broken then.
        """

    def get_future(self) -> Future[list[Any]]:
        """
        A future of the list of the very objects that were passed as outputs. Callbacks run on the group's callback thread.
        """

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """In asyncio: the list of get_future(), without blocking the event loop."""

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""

    def is_success(self) -> bool:
        """Whether it is over, and well."""

    def exception(self) -> BaseException | None:
        """None while it runs and where it succeeded."""

    def result(self) -> list[Any]:
        """The objects that were passed as outputs."""

    def source_rank(self) -> int:
        """Where a received message came from, else -1."""

    @property
    def op_type(self) -> str:
        """The name of the method that started it."""

    @property
    def sequence_number(self) -> int:
        """Counts the group's operations on this rank, from 1."""

    @property
    def time_started(self) -> datetime.datetime: ...

    @property
    def time_finished(self) -> datetime.datetime | None:
        """None while it runs."""

    def __repr__(self) -> str: ...

class WorkInfo:
    """What a completion hook is told about an operation that is over."""

    @property
    def op_type(self) -> str:
        """The name of the method that started it."""

    @property
    def seq(self) -> int:
        """Counts the group's operations on this rank, from 1."""

    @property
    def time_started(self) -> datetime.datetime: ...

    @property
    def time_finished(self) -> datetime.datetime: ...

    @property
    def active_duration(self) -> datetime.timedelta:
        """
        From its start, or from the end of the operation before it in its lane where that came later.
        """

    @property
    def lane(self) -> int: ...

    @property
    def bucket(self) -> int: ...

    @property
    def bytes(self) -> int:
        """Of this rank's inputs; of its outputs where it has none."""

    @property
    def error(self) -> BaseException | None:
        """None where it succeeded."""

    def __repr__(self) -> str: ...

class Capabilities:
    """What a group's backend can do."""

    @property
    def lanes(self) -> int:
        """How many sequences of collectives may be under way side by side."""

    @property
    def shared_buffers(self) -> bool:
        """Whether empty() gives memory that is used in place."""

class ProcessGroup:
    """
    Ranks that communicate. Every rank makes the same calls in the same order. Where a list of arrays is expected, a single one is taken, too. Arrays must stay untouched until the work is done. A class may derive from it and define any of the operations: native code then calls those, as torch.distributed would.
    """

    def __init__(self, rank: int, size: int) -> None:
        """For classes that derive from it."""

    def rank(self) -> int:
        """The number of this rank in the group, from 0 on."""

    def getRank(self) -> int:
        """PyTorch's name for rank()."""

    def size(self) -> int:
        """How many ranks the group has."""

    def getSize(self) -> int:
        """PyTorch's name for size()."""

    def backend_name(self) -> str:
        """
        What carries its operations, such as 'shm'; of a group written in Python the name of its class.
        """

    def getBackendName(self) -> str:
        """PyTorch's name for backend_name()."""

    def name(self) -> str:
        """
        What the group is called; the name of its backend where nobody has named it.
        """

    @property
    def group_name(self) -> str: ...

    def description(self) -> str:
        """Backend, rank and size in words."""

    @property
    def group_desc(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def sequence_number(self) -> int:
        """How many operations were started on this rank."""

    @property
    def timeout(self) -> datetime.timedelta:
        """How long an operation may take that is given no time."""

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """How long an operation may take from now on that is given no time."""

    def abort(self, cause: str = 'abort() was called') -> None:
        """
        Fails everything under way and to come on every rank, with Aborted naming this one and the cause. Does nothing for a class that does not define it.
        """

    def shutdown(self) -> None:
        """
        Leaves the group: what was sent goes out first, nobody's answer is waited for.
        """

    def empty(self, shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
        """
        A tensor in memory that the group's collectives work on in place; numpy.asarray of it takes no copy.
        """

    def __repr__(self) -> str: ...

    def register_on_completion_hook(self, hook: Callable[[WorkInfo], object]) -> None:
        """
        Calls hook(info) with a WorkInfo after every operation that starts from now on, on the group's callback thread, in order. What it raises fails the wait() of that operation, or wait_for_hooks(). Of a group written in Python, operations that native code starts on it count.
        """

    def wait_for_hooks(self, timeout: float | datetime.timedelta | None = None) -> None:
        """
        Waits for every operation that was started, and for its hooks; raises what a hook raised that no wait() has.
        """

    def allreduce(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None, codec: Codec | str | None = None) -> Work:
        """
        In place on every rank; the op is ReduceOp.SUM where not given. With a codec, or the text of one, the values travel encoded.
        """

    def allreduce_coalesced(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """The same of several arrays at once."""

    def reduce(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], root: int | CallOptions | None = None, op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """In place at the root, rank 0 where not given."""

    def broadcast(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], root: int | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """From the root, rank 0 where not given, to all."""

    def allgather(self, output_lists: Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Outputs are a list of size() arrays, or that in a list."""

    def allgather_into_tensor(self, output: hookline.ArrayLike, input: hookline.ArrayLike, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """The output has as many parts along its memory as there are ranks."""

    def all_gather_single(self, output: hookline.ArrayLike, input: hookline.ArrayLike, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """The output has as many parts along its memory as there are ranks."""

    def allgather_into_tensor_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Several at once."""

    def all_gather_single_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Several at once."""

    def allgather_coalesced(self, output_lists: Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Outputs are one list for each rank, with one array for each input."""

    def gather(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, root: int | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Ranks other than the root pass no outputs: None or []."""

    def scatter(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]] | None, root: int | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Ranks other than the root pass no inputs: None or []."""

    def reduce_scatter(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], input_lists: Sequence[hookline.ArrayLike] | Sequence[Sequence[hookline.ArrayLike]], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Inputs are a list of size() arrays, or that in a list."""

    def reduce_scatter_tensor(self, output: hookline.ArrayLike, input: hookline.ArrayLike, op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """The input has as many parts along its memory as there are ranks."""

    def reduce_scatter_single(self, output: hookline.ArrayLike, input: hookline.ArrayLike, op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """The input has as many parts along its memory as there are ranks."""

    def reduce_scatter_tensor_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Several at once."""

    def reduce_scatter_single_coalesced(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], op: ReduceOp | str | CallOptions | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Several at once."""

    def alltoall(self, outputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], inputs: hookline.ArrayLike | Sequence[hookline.ArrayLike], timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """One array for each rank, both ways."""

    def alltoall_base(self, output: hookline.ArrayLike, input: hookline.ArrayLike, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Splits are rows of dimension 0 for each rank; without them the parts are equal.
        """

    def all_to_all_single(self, output: hookline.ArrayLike, input: hookline.ArrayLike, output_split_sizes: Sequence[int] | None = None, input_split_sizes: Sequence[int] | None = None, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """
        Splits are rows of dimension 0 for each rank; without them the parts are equal.
        """

    def send(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], dst: int, tag: int = 0, timeout: float | datetime.timedelta | CallOptions | None = None) -> Work:
        """Matched by peer, tag and order; outside the order of the collectives."""

    def recv(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], src: int, tag: int = 0, timeout: float | datetime.timedelta | CallOptions | None = None) -> Work:
        """What rank src sends with this tag, into the arrays."""

    def recv_anysource(self, tensors: hookline.ArrayLike | Sequence[hookline.ArrayLike], tag: int = 0, timeout: float | datetime.timedelta | CallOptions | None = None) -> Work:
        """Work.source_rank() says who sent it."""

    def barrier(self, timeout: float | datetime.timedelta | CallOptions | None = None, opts: CallOptions | None = None) -> Work:
        """Is done when every rank has called it."""

    def monitored_barrier(self, timeout: float | datetime.timedelta | CallOptions | None = None, wait_all_ranks: bool = False) -> None:
        """
        A barrier that blocks; the error names the first rank that did not join in time, or all of them.
        """

    def new_group(self, ranks: Sequence[int], timeout: float | datetime.timedelta | None = None) -> ProcessGroup | None:
        """
        A group of some of the ranks, in the order given; None on a rank that is not among them. Every rank of this group calls it.
        """

    def split_group(self, ranks: Sequence[int], timeout: float | datetime.timedelta | None = None) -> ProcessGroup | None:
        """
        A group of some of the ranks, in the order given; None on a rank that is not among them. Every rank of this group calls it.
        """

    def split(self, color: int, key: int = 0) -> ProcessGroup | None:
        """
        Groups of the ranks that passed the same color, ordered by key, then rank; None for a negative color.
        """

    def start_coalescing(self, device: object | None = None) -> None:
        """
        Operations that are started between this and the end have a work in common.
        """

    def end_coalescing(self, device: object | None = None) -> Work:
        """
        The work of all operations that were started since the start, done when all of them are.
        """

def is_initialized(object: object) -> bool:
    """Whether it is an object of this module whose __init__ has run."""

def default_group() -> ProcessGroup:
    """The group that init_process_group made last, while it lives."""

def init_process_group(backend: str | None = None, init_method: str = 'env://', rank: int | None = None, world_size: int | None = None, timeout: float | datetime.timedelta | None = None, store: Store | None = None, backend_options: Mapping[str, str] = {}) -> ProcessGroup:
    """
    Meets the other processes of the job and returns the group of all of them. Without a backend it is shm on one host, and layered beyond: over mpi under an MPI launcher, else over gloo. The timeout, 30 minutes where not given, is that of meeting and of every operation that has none of its own. What options there are depends on the backend: shm takes "waiting", gloo "interface" and "address", mpi "communicator", layered "engine" and those of that engine.
    """

def make_thread_groups(size: int, timeout: float | datetime.timedelta | None = None) -> list[ProcessGroup]:
    """
    The groups of a new set of ranks that are threads of this process, in rank order, each for one thread.
    """

def checked(group: ProcessGroup, store: Store) -> ProcessGroup:
    """
    A group around `group` whose collectives start only when all ranks have called the same one, with the same dtype, shapes and root; else every rank gets a Mismatch that lists all calls. All ranks share the store.
    """

def with_nan_checks(group: ProcessGroup) -> ProcessGroup:
    """
    A group around `group` that raises InvalidArgument, naming rank, operation, tensor and index, before it would send a NaN or an infinity, and aborts the group.
    """

def compared(group: ProcessGroup, other: ProcessGroup, tolerance: float = 0.0) -> ProcessGroup:
    """
    A group that runs every operation on two groups of the same ranks, and fails at the first element that differs by more than the tolerance, a part of the larger magnitude.
    """

def recorded(group: ProcessGroup, capacity: int = 1024, directory: str | None = None, name: str | None = None) -> ProcessGroup:
    """
    A group around `group` that remembers its last operations and dumps them as JSON at an error, at SIGUSR1 and by dump_flight_records(); `hookline debug DIR` reads the dumps of all ranks. The directory is HOOKLINE_DEBUG_DIR, or hookline-debug, where not given.
    """

def records(group: ProcessGroup) -> dict[str, Any]:
    """What a recorded group remembers."""

def dump_flight_records(group: ProcessGroup, path: str | None = None) -> str:
    """Writes what a recorded group remembers to a file and returns its path."""

class GradBucket:
    """
    The gradients of some parameters in one flat buffer: what a communication hook gets.
    """

    def __init__(self, buffer: Any, sizes: Sequence[int | Sequence[int]] | None = None, parameters: Sequence[Any] | None = None, index: int = 0, bucket_count: int = 1, sparse_grad_indices: Any | None = None) -> None:
        """
        A bucket of a flat array, for trying a hook alone. Without sizes it holds one gradient.
        """

    def index(self) -> int:
        """Its place in the order in which the buckets of a step are sent."""

    def get_index(self) -> int:
        """The same as index()."""

    def bucket_count(self) -> int:
        """How many buckets the step has."""

    def is_last(self) -> bool:
        """Whether it is the last of the step."""

    def buffer(self) -> Any:
        """The flat buffer: a NumPy array, or a torch tensor under torch."""

    def set_buffer(self, buffer: Any) -> None:
        """Another buffer with as many elements; its dtype may differ."""

    def set_contribution(self, contribution: Any) -> None:
        """
        Reports this rank's gradients as the other ranks decode them, flat: what error_feedback compares with what the hook got. Once a run, before the hook's Future completes; the values are copied.
        """

    def wants_contribution(self) -> bool:
        """True if an error_feedback around the hook asks for set_contribution."""

    def gradients(self) -> list[Any]:
        """Views of the buffer with the parameters' shapes."""

    def parameters(self) -> list[Any]:
        """The parameters whose gradients it holds."""

    def offsets(self) -> list[int]:
        """Where each gradient begins in the buffer, in elements."""

    def lengths(self) -> list[int]:
        """How many elements each gradient has."""

    def sizes(self) -> list[tuple[int, ...]]:
        """The shape of each gradient."""

    def sparse_grad_indices(self) -> Any:
        """The rows of a sparse gradient, or None."""

    def __repr__(self) -> str: ...

class CommHook:
    """A communication hook that runs without Python; made by make_hook."""

    @property
    def name(self) -> str: ...

    def __call__(self, state: Any, bucket: GradBucket) -> Future[Any]:
        """As a function of Python's would be called; the state is of no matter."""

    def costs(self) -> list[dict[str, Any]]:
        """
        What the last step's buckets cost: bytes sent, ratio, encode_time, decode_time, residual_norm, and relative_error behind '… | compare'.
        """

    def save(self) -> bytes:
        """What it keeps between steps, on this rank, as bytes."""

    def load(self, state: bytes) -> None:
        """
        Puts what save() gave in the place of what it keeps. InvalidArgument for the state of another hook, model, rank or number of ranks. Executes nothing.
        """

    def __or__(self, text: str) -> CommHook:
        """
        The wrappers of a text around this hook: hook | 'error_feedback'. The same object must not run beside it.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...

    def __repr__(self) -> str: ...

def make_hook(hook: str | Callable[[Any, GradBucket], Any], group: ProcessGroup, state: Any = None, *, reports_contribution: bool = False, for_torch: bool = False) -> CommHook:
    """
    The hook of a text: a name with options in parentheses, and wrappers behind it: 'int8(block=512) | error_feedback'. Or a function hook(state, bucket), whose state is the group unless another is given; with reports_contribution it calls bucket.set_contribution in every run, as error_feedback requires. With for_torch its buckets have torch tensors.
    """

def register_factory(name: str, description: str) -> None:
    """The native half of hookline.register_hook."""

def unregister_factory(name: str) -> None:
    """The native half of hookline.unregister_hook."""

def registered_hooks(alone: bool = False) -> dict[str, str]:
    """
    The hooks that make_hook knows, with what they do; or those only that need no other to be wrapped around.
    """

def hook_options(name: str) -> dict[str, tuple[str, str]]:
    """
    The options of a hook that make_hook knows: the value of each where it is not given, and what it must be.
    """

class PowerSGDState:
    """
    PowerSGD's options, and what it keeps of a model's gradients. For one model.
    """

    def __init__(self, process_group: ProcessGroup | None = None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000, min_compression_rate: float = 2.0, use_error_feedback: bool = True, warm_start: bool = True, orthogonalization_epsilon: float = 0.0, random_seed: int = 0, compression_stats_logging_frequency: int = 10000, batch_tensors_with_same_shape: bool = False, wire: str = 'fp32') -> None: ...

    @property
    def process_group(self) -> ProcessGroup | None:
        """The group to reduce over; None: that of the model."""

    @process_group.setter
    def process_group(self, group: ProcessGroup | None) -> None: ...

    @property
    def wire(self) -> str:
        """How the factors travel: fp32, fp16 or bf16."""

    @wire.setter
    def wire(self, arg: str, /) -> None: ...

    def __getstate__(self) -> dict[str, Any]: ...

    def __setstate__(self, state: dict[str, Any]) -> None: ...

    @property
    def matrix_approximation_rank(self) -> int:
        """The columns of a factor."""

    @matrix_approximation_rank.setter
    def matrix_approximation_rank(self, arg: int, /) -> None: ...

    @property
    def start_powerSGD_iter(self) -> int:
        """Steps of plain allreduce before."""

    @start_powerSGD_iter.setter
    def start_powerSGD_iter(self, arg: int, /) -> None: ...

    @property
    def min_compression_rate(self) -> float:
        """What must be saved at least."""

    @min_compression_rate.setter
    def min_compression_rate(self, arg: float, /) -> None: ...

    @property
    def use_error_feedback(self) -> bool:
        """Whether what was lost is added in the next step."""

    @use_error_feedback.setter
    def use_error_feedback(self, arg: bool, /) -> None: ...

    @property
    def warm_start(self) -> bool:
        """Whether a step begins with the factor of the one before."""

    @warm_start.setter
    def warm_start(self, arg: bool, /) -> None: ...

    @property
    def orthogonalization_epsilon(self) -> float:
        """Added to the columns' norms."""

    @orthogonalization_epsilon.setter
    def orthogonalization_epsilon(self, arg: float, /) -> None: ...

    @property
    def compression_stats_logging_frequency(self) -> int:
        """Steps between two lines of the log."""

    @compression_stats_logging_frequency.setter
    def compression_stats_logging_frequency(self, arg: int, /) -> None: ...

    @property
    def batch_tensors_with_same_shape(self) -> bool:
        """Changes nothing: a bucket's matrices are sent together anyway."""

    @batch_tensors_with_same_shape.setter
    def batch_tensors_with_same_shape(self, arg: bool, /) -> None: ...

    @property
    def iter(self) -> int:
        """Steps up to now."""

    @property
    def total_numel_before_compression(self) -> int: ...

    @property
    def total_numel_after_compression(self) -> int: ...

    @property
    def next_stats_report(self) -> int:
        """The step from which on totals are logged next."""

    @property
    def error_dict(self) -> dict[int, Any]:
        """Copies of the errors, by bucket."""

    @property
    def p_memory_dict(self) -> dict[int, Any]:
        """Copies of the left factors, by bucket, column after column."""

    @property
    def q_memory_dict(self) -> dict[int, Any]:
        """Copies of the right factors."""

    @property
    def random_seed(self) -> int: ...

    @property
    def rng(self) -> tuple[int, int]:
        """What factors are drawn by, beside their names: seed and step."""

    def compression_stats(self) -> tuple[float, int, int]:
        """
        The rate, and the elements before and after compression, of all steps that compressed.
        """

def powersgd_hook(state: PowerSGDState, batched: bool, group: ProcessGroup | None = None) -> CommHook:
    """The hook of a state."""

class PostLocalSGDState:
    """
    What post_localSGD_hook goes by: the mean over process_group in the first start_localSGD_iter steps, then over subgroup, or none at all without post_local_gradient_allreduce.
    """

    def __init__(self, process_group: ProcessGroup | None, subgroup: ProcessGroup | None, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True) -> None:
        """
        Without a process_group the default one, without a subgroup the ranks of this host. Every rank makes one.
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
        """The number of steps that were begun; a run that is resumed sets it."""

    @iter.setter
    def iter(self, arg: int, /) -> None: ...

    def __repr__(self) -> str: ...

def make_post_local_sgd_hook(state: PostLocalSGDState) -> CommHook:
    """
    The hook of a state, for register_comm_hook; post_localSGD_hook makes the same of it.
    """

class Optimizer:
    """
    Steps parameters by their gradients, as torch.optim does, without Python.
    """

    @property
    def name(self) -> str: ...

    @property
    def lr(self) -> float:
        """The learning rate; another one holds from the next step."""

    @lr.setter
    def lr(self, arg: float, /) -> None: ...

    @property
    def options(self) -> dict[str, float | bool]: ...

    def set_options(self, **options: float) -> None:
        """Other values for some of the options, from the next step on."""

    def step(self, params: Any, grads: Any, scale: float = 1.0) -> None:
        """
        Changes the parameters in place. Both are mappings by name or sequences; None gradients are left out. Gradients are multiplied by scale.
        """

    def state_dict(self) -> dict[str, Any]:
        """Options, and copies of what is remembered of each parameter."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts what state_dict() gave in the place of what is remembered."""

    def save(self) -> bytes:
        """The same as bytes."""

    def load(self, state: bytes) -> None:
        """Executes nothing."""

    def __reduce__(self) -> tuple[Any, ...]: ...

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

def make_optimizer(text: str) -> Optimizer:
    """
    The optimizer of a text: 'sgd(lr=0.1, momentum=0.9)', 'adam', 'adamw(lr=1e-3)'.
    """

def overlap(hook: CommHook, optimizer: Any, clip_norm: float | None = None) -> CommHook:
    """
    The hook, and behind it the steps of each bucket's parameters while later buckets are still communicating: by an Optimizer or its text, by a function of a bucket, or by an object with step_param(param, grad). With clip_norm the steps wait for the whole gradient, which is scaled to that norm where it is larger.
    """

class ModelAverager:
    """Counts the steps of a training and averages parameters in some."""

    def average_parameters(self, params: Any) -> bool:
        """
        Called once a step, behind the optimizer, on every rank, with arrays, a mapping to them, or param_groups. Puts the mean over the ranks in their place where it is due, and tells whether it was.
        """

    @property
    def step(self) -> int:
        """The number of steps that were counted; a run that is resumed sets it."""

    @step.setter
    def step(self, arg: int, /) -> None: ...

    @property
    def warmup_steps(self) -> int: ...

    @property
    def process_group(self) -> ProcessGroup: ...

class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps behind the warm-up."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None: ...

    @property
    def period(self) -> int: ...

class HierarchicalModelAverager(ModelAverager):
    """
    Averages over groups of several sizes, each with its period: {2: 2, 8: 4} over pairs every 2 steps and over four ranks every 8.
    """

    def __init__(self, period_group_size_dict: Mapping[int, int] | None = None, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None: ...

    @property
    def period_process_group_dict(self) -> dict[int, ProcessGroup]: ...

def local_group(group: ProcessGroup | None = None) -> ProcessGroup:
    """The ranks that run on this one's host. Every rank calls it."""

class Reducer:
    """
    Averages gradients over the ranks of a group while the backward pass goes on.
    """

    def __init__(self, parameters: Sequence[tuple[str, Any]], group: ProcessGroup, hook: object | None = None, state: object | None = None, first_bucket_bytes: int = 1048576, bucket_bytes: int = 26214400, find_unused_parameters: bool = False, static_graph: bool = False, mean: str = 'average', broadcast_parameters: bool = True, timeout: float | datetime.timedelta | None = None, sparse: Set[str] = ..., ignored: Set[str] = ..., delayed: Set[str] = ..., frozen: Set[str] = ..., buffers: Sequence[tuple[str, Any]] | None = None, buckets: Sequence[Sequence[int]] | None = None, for_torch: bool = False, optimizer: object | None = None, clip_norm: float | None = None) -> None: ...

    def mark_ready(self, parameter: int | str, gradient: Any | None = None) -> None:
        """
        The gradient of a parameter is there: in gradient(parameter), or in the array given, which finalize() overwrites with the mean.
        """

    def mark_ready_sparse(self, parameter: int | str, indices: Any, values: Any) -> None:
        """The same of a sparse parameter: row numbers (int64), and those rows."""

    def mark_unused(self, parameter: int | str, gradient: Any) -> None:
        """
        This pass does not come to a parameter with a gradient of earlier ones: that is part of the mean, and gets it if any rank marks the parameter ready. In later steps of a static_graph before the first mark.
        """

    def mark_unused_sparse(self, parameter: int | str, indices: Any, values: Any) -> None:
        """The same of a sparse parameter."""

    def discard_step(self) -> None:
        """
        Forgets the marks of a step whose backward pass failed, before any of its buckets was under way.
        """

    def finalize(self) -> None:
        """Waits until all buckets are reduced."""

    def gradient(self, parameter: int | str) -> Tensor:
        """The place of a parameter's gradient in its bucket."""

    def copy_gradient(self, parameter: int | str, to: Any) -> None:
        """Copies a parameter's mean into an array, after finalize()."""

    def sparse_gradient(self, parameter: int | str) -> tuple[Tensor, Tensor]:
        """The reduced rows of a sparse parameter: indices and values."""

    def replace_hook(self, state: object | None, hook: object | None) -> None:
        """Another hook from the next step on."""

    @property
    def hook_name(self) -> str: ...

    def begin_no_sync(self) -> None:
        """Until end_no_sync() gradients add up and nothing is sent."""

    def end_no_sync(self) -> None:
        """The next step reduces the sums of those since begin_no_sync()."""

    def set_weight(self, weight: float) -> None:
        """
        The weight of this rank's gradients in the means to come. Every rank calls it.
        """

    @property
    def step_id(self) -> int | None:
        """
        A number of the caller's for the steps that begin from now on, from 0 to 2**32 - 1; None: no number. Ranks whose numbers differ get a Mismatch with the first bucket of a step.
        """

    @step_id.setter
    def step_id(self, id: int | None) -> None: ...

    def begin_join(self, divide_by_initial_world_size: bool = True) -> None:
        """Until end_join() ranks may take different numbers of steps."""

    def end_join(self) -> None:
        """Takes part in the others' steps until all ranks are through."""

    def buckets(self) -> list[list[int]]:
        """
        The positions of the parameters in each bucket; final once the second step has begun.
        """

    def stats(self) -> dict[str, Any]:
        """What was measured of the last step."""

def broadcast_coalesced(group: ProcessGroup, tensors: object, buffer_size: int = 262144000, root: int = 0) -> None:
    """
    Copies the root's arrays into those of every rank, in buffers of at most buffer_size bytes.
    """

def group_to_capsule(group: ProcessGroup) -> CapsuleType:
    """A group for another extension module that links to this library."""

def group_from_capsule(capsule: object) -> ProcessGroup:
    """The group in such a capsule."""

def store_to_capsule(store: Store) -> CapsuleType:
    """The same for a store."""

def store_from_capsule(capsule: object) -> Store:
    """The store in such a capsule."""

def hook_to_capsule(hook: CommHook) -> CapsuleType:
    """The same for a hook."""

def error_to_python() -> CapsuleType:
    """
    For another extension module: the function that makes the Python exception of a C++ error.
    """

def owner_of_object() -> CapsuleType:
    """
    For another extension module: the function that makes a Python object the owner of a tensor.
    """

def calls_python(group: ProcessGroup) -> bool:
    """True where operations of the group call a Python class."""

def group_of_hook(hook: CommHook) -> ProcessGroup:
    """The group that it was made for."""

def hook_from_capsule(capsule: object, group: ProcessGroup) -> CommHook:
    """The hook in a capsule, on the group that it was made for."""
