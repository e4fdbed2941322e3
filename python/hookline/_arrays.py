"""The array types that collectives accept, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from ._core import Tensor

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SupportsDLPack(Protocol):
    """NumPy arrays, torch tensors and other objects that export DLPack."""

    def __dlpack__(self, *, stream: Any = ...) -> Any:
        """Exports the array as a capsule."""


ArrayLike: TypeAlias = Union[Tensor, SupportsDLPack, "Buffer"]
