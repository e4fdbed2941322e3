"""Runs build tools for the packaging tests; failures include their output."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
CONSUMER = Path(__file__).parent / "consumer"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command and returns its stdout; AssertionError with the full output if it fails."""
    # PYTHONPATH would select the staged package.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(list(map(str, command)), cwd=cwd, env=env, text=True, capture_output=True, check=False)
    output = result.stdout + result.stderr
    assert result.returncode == 0, f"{' '.join(map(str, command))} ended with {result.returncode}:\n{output}"
    return result.stdout


def compiled_as_build() -> list[str]:
    """Returns the pip options that compile a package as the build does, so that ccache has all objects."""
    cache = dict(re.findall(r"(?m)^(CMAKE_[A-Z_]+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text()))
    build_type = cache["CMAKE_BUILD_TYPE"]
    same = ("CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS", f"CMAKE_CXX_FLAGS_{build_type.upper()}")
    return [f"-Ccmake.build-type={build_type}", *(f"-Ccmake.define.{name}={cache[name]}" for name in same)]


def build_consumer(prefix: Path, build: Path) -> str:
    """Builds the consumer project against what is installed below `prefix`, runs it, and returns what it prints."""
    run(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        CONSUMER,
        "-B",
        build,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}",
    )
    run("cmake", "--build", build)
    return run(build / "consumer")
