"""`hookline doctor`: checks the installation, the limits of the machine and every backend, and suggests fixes."""

import argparse
import platform
from collections.abc import Iterator, Sequence

import numpy as np

from .. import __version__, _torch_versions, backend_names
from .._core import compiler, cpu_targets
from .limits import check_limits, read_limits
from .report import Finding, State, summary
from .self_test import try_backend


def versions() -> Iterator[Finding]:
    """Checks the installed versions and their compatibility."""
    yield Finding(State.OK, f"hookline {__version__}, built by {compiler}")
    yield Finding(State.OK, f"Python {platform.python_version()}, NumPy {np.__version__}")
    targets = cpu_targets()
    yield Finding(State.OK, f"processor: {platform.machine()}, SIMD target {targets[-1]} (of {', '.join(targets)})")
    torch = _torch_versions.installed("torch")
    if torch is None:
        yield Finding(State.NOT_APPLICABLE, "PyTorch: not installed (only hookline.torch requires it)")
        return
    try:
        _torch_versions.load()
    except ImportError as error:
        absent = _torch_versions.installed("hookline_torch") is None
        yield Finding(State.NOT_APPLICABLE if absent else State.FAIL, f"PyTorch {torch}: {error}")
    else:
        yield Finding(State.OK, f"PyTorch {torch}; hookline.torch is built against this version")


def main(arguments: Sequence[str]) -> int:
    """Prints the report and returns the exit code: 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="hookline doctor",
        description="Checks installed versions, system limits, and an allreduce of two ranks on each backend, and "
        "suggests fixes. 'warn' marks what works but may be slow or run short; the exit code is 1 if a check FAILs.",
    )
    parser.parse_args(arguments)
    sections = {
        "versions": versions(),
        "limits": check_limits(read_limits()),
        "self-test: allreduce of two ranks on each backend": map(try_backend, ["threads", *backend_names()]),
    }
    all_findings = []
    for title, findings in sections.items():
        print(title, flush=True)
        for finding in findings:
            print("\n".join(finding.lines()), flush=True)
            all_findings.append(finding)
    text, code = summary(all_findings)
    print(text)
    return code
