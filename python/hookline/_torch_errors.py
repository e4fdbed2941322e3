"""Store error classes that also derive from the corresponding PyTorch exceptions."""

from functools import cache


@cache
def combined_type(own_type: type[BaseException], torch_type: type[BaseException]) -> type[BaseException]:
    """Returns a class with the name of `own_type` that derives from both. Its instances are pickled as `own_type`."""

    def reduce(self: BaseException) -> tuple[type[BaseException], tuple[object, ...]]:
        return own_type, self.args

    members = {"__module__": own_type.__module__, "__doc__": own_type.__doc__, "__reduce__": reduce}
    return type(own_type.__name__, (own_type, torch_type), members)
