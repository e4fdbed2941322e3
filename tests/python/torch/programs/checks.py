"""Shared code of the test programs: the default group, and checks whose results are written to a file."""

import datetime
import faulthandler
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a check. All ranks run the checks in file order."""
    CHECKS[function.__name__] = function
    return function


def init_group(backend: str, seconds: float = 120) -> None:
    """Creates the default group, with a timeout that suffices on a loaded machine."""
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(300)  # shows where a rank hangs
    dist.init_process_group(
        backend,
        init_method=os.environ["INIT_METHOD"],
        rank=RANK,
        world_size=SIZE,
        timeout=datetime.timedelta(seconds=seconds),
    )


def run() -> None:
    results = {}
    for name, function in CHECKS.items():
        try:
            function()
            results[name] = "ok"
        except BaseException:
            results[name] = traceback.format_exc()
    Path(os.environ["RESULTS"]).write_text(json.dumps(results))


def raises(kind: type[BaseException], words: str, function: Callable[[], object]) -> None:
    try:
        function()
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"{words!r} is not in {error}") from error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")
