from collections.abc import Callable, Generator
import datetime
from typing import Any, Generic, TypeVar


version: str = '0.1.0'

class Error(Exception):
    """The base of every error of hookline."""

class InvalidArgument(Error, ValueError):
    """The caller's own mistake."""

class Unsupported(Error, NotImplementedError):
    """An operation, device or engine that is not to be had here."""

class Timeout(Error, TimeoutError):
    """Something did not happen in time."""

class PeerLost(Error, RuntimeError):
    """A peer died or its connection broke."""

class Mismatch(Error, RuntimeError):
    """The ranks did not call the same operation; no data was changed."""

class Aborted(Error, RuntimeError):
    """
    A rank gave up, the group was aborted, or a future was dropped unfulfilled.
    """

class ResourceError(Error, OSError):
    """What the operating system refused: memory, files, sockets."""

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
