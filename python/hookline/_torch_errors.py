"""Classes for the errors of stores that are also the exceptions of PyTorch's stores."""

from functools import cache


@cache
def joined(ours: type[BaseException], torchs: type[BaseException]) -> type[BaseException]:
    """Returns a class with the name of `ours` that derives from both. Its instances are pickled as `ours`."""

    def reduce(self: BaseException) -> tuple[type[BaseException], tuple[object, ...]]:
        return ours, self.args

    members = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__reduce__": reduce}
    return type(ours.__name__, (ours, torchs), members)
