"""Fixtures for tests with process groups: ranks as threads, and programs under `hookline run`."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hookline

for folder in (Path(__file__).parent, Path(__file__).parent / "group"):  # for training_steps and python_groups
    sys.path.insert(0, str(folder))

DEADLINE = 60.0


@pytest.fixture
def ranks() -> Callable[..., list[Any]]:
    """ranks(n, f) calls f(group) on n threads and returns the results, or raises the first exception."""

    def run(size: int, function: Callable[[hookline.ProcessGroup], Any]) -> list[Any]:
        groups = hookline.make_thread_groups(size, timeout=30)
        results: list[Any] = [None] * size
        errors: list[tuple[int, BaseException]] = []

        def one(rank: int) -> None:
            try:
                results[rank] = function(groups[rank])
            except BaseException as error:
                errors.append((rank, error))
                groups[rank].abort("the test failed here")

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
        if errors:
            raise errors[0][1]
        return results

    return run


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """launch(n, text) runs a program as n ranks under `hookline run`."""

    def run(size: int, text: str) -> "subprocess.CompletedProcess[str]":
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(text))
        return subprocess.run(
            [sys.executable, "-m", "hookline", "run", "-n", str(size), str(program)],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )

    return run
