"""`hookline doctor`: what is installed here, what the machine allows, whether two ranks can talk, and what to fix."""

import argparse
import platform
from collections.abc import Iterator, Sequence

import numpy as np

from .. import __version__, _torch_versions, backend_names
from .._core import compiler, cpu_targets
from .findings import Finding, State, summary
from .limits import judge, read_limits
from .self_test import try_backend


def versions() -> Iterator[Finding]:
    """What is installed, and whether it fits together."""
    yield Finding(State.OK, f"hookline {__version__}, built by {compiler}")
    yield Finding(State.OK, f"Python {platform.python_version()}, NumPy {np.__version__}")
    targets = cpu_targets()
    yield Finding(State.OK, f"processor: {targets[-1]} is used, of {', '.join(targets)}; {platform.machine()}")
    torch = _torch_versions.installed("torch")
    if torch is None:
        yield Finding(State.ABSENT, "PyTorch: not installed; only hookline.torch needs it")
        return
    try:
        _torch_versions.load()
    except ImportError as error:
        absent = _torch_versions.installed("hookline_torch") is None
        yield Finding(State.ABSENT if absent else State.WRONG, f"PyTorch {torch}: {error}")
    else:
        yield Finding(State.OK, f"PyTorch {torch}, and hookline.torch built against it")


def main(arguments: Sequence[str]) -> int:
    """Prints the report; 1 where something is wrong."""
    parser = argparse.ArgumentParser(
        prog="hookline doctor",
        description="Says what is installed, what the machine allows, whether two ranks can talk, and what to fix. "
        "'look' is for what works and may be slow or short; the exit code is 1 where something is WRONG.",
    )
    parser.parse_args(arguments)
    parts = {
        "versions": versions(),
        "limits": judge(read_limits()),
        "self-test, an allreduce of two ranks on each backend": map(try_backend, ["threads", *backend_names()]),
    }
    all_findings = []
    for title, findings in parts.items():
        print(title, flush=True)
        for finding in findings:
            print("\n".join(finding.lines()), flush=True)
            all_findings.append(finding)
    text, code = summary(all_findings)
    print(text)
    return code
