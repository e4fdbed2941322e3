"""`pip install .` creates a self-contained package, for Python and for C++, in an empty environment."""

import re
import sys
import zipfile
from pathlib import Path

import pytest
from building import ROOT, build_consumer, compiled_as_build, run

VERSION = re.search(r'HOOKLINE_VERSION "(.*)"', (ROOT / "include/hookline/version.hpp").read_text())[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

pytestmark = pytest.mark.timeout(900)  # the first wheel compiles all sources


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    offline = ("--no-build-isolation", "--no-deps", "--no-index")
    run(*PIP, "wheel", *offline, *compiled_as_build(), "--wheel-dir", folder, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the Python interpreter of an environment in which only the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    return python


def in_environment(python: Path, program: str) -> str:
    return run(python, "-I", "-c", program, cwd=python.parent).strip()


def test_the_wheel_has_the_library_once_with_headers_and_cmake_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    libraries = {name for name in names if "libhookline" in name}
    transports = {"hookline/lib/libhookline_gloo.so", "hookline/lib/libhookline_mpi.so"}
    assert libraries - transports == {"hookline/lib/libhookline.so.0.1"}
    assert "hookline/lib/libhookline_gloo.so" in libraries
    assert "hookline/include/hookline/hookline.hpp" in names
    assert "hookline/lib/cmake/hookline/hookline-config.cmake" in names
    assert "hookline/py.typed" in names
    assert "hookline/_core.pyi" in names
    assert {name.split("/")[0] for name in names} == {"hookline", f"hookline-{VERSION}.dist-info"}


def test_the_installed_package_works(environment: Path) -> None:
    program = "import hookline, importlib.metadata as m; print(m.version('hookline'), hookline.__version__)"
    assert in_environment(environment, program) == f"{VERSION} {VERSION}"
    location = in_environment(environment, "import hookline; print(hookline.__file__)")
    assert Path(location).is_relative_to(environment.parent.parent)


def test_a_cpp_project_builds_against_the_installed_package(environment: Path, tmp_path: Path) -> None:
    prefix = in_environment(environment, "import hookline, pathlib; print(pathlib.Path(hookline.__file__).parent)")
    assert "dimensions: expected at most 16, got 1000" in build_consumer(Path(prefix), tmp_path / "build")
