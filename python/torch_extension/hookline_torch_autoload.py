"""Entry point that torch calls at the end of its import; it registers the backend name "hookline"."""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Registers the backend with torch.distributed. Never raises, and defers all imports to the first group."""
    try:
        from torch.distributed import Backend

        if "hookline" not in Backend.backend_list:
            Backend.register_backend("hookline", make_backend, extended_api=True, devices=["cpu"])
    except Exception:  # a torch without torch.distributed, or with another API: the backend is then unavailable
        return


def make_backend(options: Any, backend_options: Any) -> Any:
    """Creates the backend of a group; called by init_process_group and new_group."""
    from hookline_torch import groups

    return groups.make_backend(options, backend_options)
