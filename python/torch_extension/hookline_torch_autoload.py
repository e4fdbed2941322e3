"""What torch calls at the end of its own import, so that "hookline" is the name of a backend without another import."""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Tells torch.distributed of the backend. Never raises, and loads nothing: the first group of it does that."""
    try:
        from torch.distributed import Backend

        if "hookline" not in Backend.backend_list:
            Backend.register_backend("hookline", make_backend, extended_api=True, devices=["cpu"])
    except Exception:  # a torch without torch.distributed, or one in which this has changed: no backend then
        return


def make_backend(options: Any, backend_options: Any) -> Any:
    """Called by init_process_group and new_group for each group of this backend."""
    from hookline_torch import groups

    return groups.make_backend(options, backend_options)
