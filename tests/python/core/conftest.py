"""Fixture that runs code in a new interpreter, which must exit cleanly without leaks."""

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[..., str]:
    def run(code: str, may_leak: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert may_leak or "leaked" not in done.stderr, done.stderr
        return done.stdout

    return run
