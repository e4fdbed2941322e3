"""Without Gloo or MPI, the build skips the transport, and requesting it raises an error that names the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import BUILD, ROOT, run

PACKAGES = {"gloo": "libgloo-dev", "mpi": "libopenmpi-dev"}

ASK = """
import hookline as hl
for transport in ("gloo", "mpi"):
    try:
        hl.init_process_group(transport, store=hl.MemoryStore(), rank=0, world_size=1)
    except hl.Unsupported as error:
        print(error)
print(hl.init_process_group(store=hl.MemoryStore(), rank=0, world_size=1).getBackendName())
"""


def test_a_build_without_gloo_and_mpi(tmp_path: Path) -> None:
    printed = run(
        *("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path),
        *("-DHOOKLINE_DEVELOP=ON", "-DHOOKLINE_PYTHON=OFF", f"-DPython_EXECUTABLE={sys.executable}"),
        *("-DCMAKE_DISABLE_FIND_PACKAGE_Gloo=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"),
    )
    built = (tmp_path / "build.ninja").read_text()
    assert "libhookline.so" in built
    for transport, package in PACKAGES.items():
        assert f"skipping the transport '{transport}'. Install Debian's {package} to build it." in printed
        assert f"libhookline_{transport}.so" not in built


@pytest.fixture
def package_without_transports(tmp_path: Path) -> Path:
    # The library loads transports from its own directory. The staged package only links to the library, so copy the
    # targets of links.
    shutil.copytree(BUILD / "python/hookline", tmp_path / "hookline", symlinks=False)
    for transport in tmp_path.rglob("libhookline_*.so"):
        transport.unlink()
    return tmp_path


def test_a_missing_transport_is_an_error_that_names_the_package(package_without_transports: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(package_without_transports)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout
    for line, (transport, package) in zip(lines, PACKAGES.items(), strict=False):
        assert line.startswith(f"the transport '{transport}' is not installed: no library found at "), line
        assert f". Install Debian's {package}, " in line, line
    assert lines[2] == "shm"
