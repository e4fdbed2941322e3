"""Where Gloo or MPI is not installed, the build leaves the engine out, and asking for it says what to install."""

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
for engine in ("gloo", "mpi"):
    try:
        hl.init_process_group(engine, store=hl.MemoryStore(), rank=0, world_size=1)
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
    for engine, package in PACKAGES.items():
        assert f"the transport '{engine}' is left out (Debian's {package} brings it)" in printed
        assert f"libhookline_{engine}.so" not in built


@pytest.fixture
def package_without_engines(tmp_path: Path) -> Path:
    # Engines are looked for beside the library, which the staged package has a link to.
    shutil.copytree(BUILD / "python/hookline", tmp_path / "hookline", symlinks=False)
    for engine in tmp_path.rglob("libhookline_*.so"):
        engine.unlink()
    return tmp_path


def test_asking_for_an_engine_that_was_left_out(package_without_engines: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(package_without_engines)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout
    for line, (engine, package) in zip(lines, PACKAGES.items(), strict=False):
        assert line.startswith(f"the transport '{engine}' is not installed: no library found at "), line
        assert f". Install Debian's {package}, " in line, line
    assert lines[2] == "shm"
