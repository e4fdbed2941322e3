"""The Python programs of examples/, and the programs that stand in the README, run as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))


def run(*command: str | Path) -> str:
    result = subprocess.run(list(map(str, command)), text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def readme(language: str) -> str:
    """The program in the README that is written in this language."""
    (program,) = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return program


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example(path: Path) -> None:
    """Programs with a process group are started as two ranks."""
    launcher = ["-m", "hookline", "run", "-n", "2"] if "init_process_group" in path.read_text() else []
    assert run(sys.executable, *launcher, path)


def test_python_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(readme("python"))
    assert run(sys.executable, tmp_path / "program.py")


def test_cpp_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.cpp").write_text(readme("cpp"))
    options = ["-std=c++20", "-Wall", "-Werror", f"-I{ROOT}/include", f"-L{BUILD}/src", f"-Wl,-rpath,{BUILD}/src"]
    run("c++", *options, tmp_path / "program.cpp", "-o", tmp_path / "program", "-lhookline", "-pthread")
    assert run(tmp_path / "program")
