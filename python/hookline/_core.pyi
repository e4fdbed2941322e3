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
