"""Runs the Python programs in examples/ and in the README, unchanged."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hookline as hl

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))


def run(*command: str | Path) -> str:
    result = subprocess.run(list(map(str, command)), text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def readme(heading: str) -> str:
    """Returns the first program below a heading of the README."""
    (section,) = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)^## ", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    return re.search(r"^```\w+\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[1]


PROGRAMS = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "examples/hooks").glob("*.py")])
TWO_RANKS = [sys.executable, "-m", "hookline", "run", "-n", "2"]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_example(path: Path) -> None:
    """Programs with a process group are started as two ranks."""
    launcher = TWO_RANKS if "init_process_group" in path.read_text() else [sys.executable]
    assert run(*launcher, path)


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in hl.__all__ if name != "ArrayLike" and not getattr(hl, name).__doc__] == []


def undocumented_functions(body: list[ast.stmt], place: str = "") -> list[str]:
    """Returns the public functions and methods of a stub that have no docstring on any overload."""
    is_undocumented: dict[str, bool] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            is_property = bool(decorators & {"property", f"{node.name}.setter"})
            is_undocumented[node.name] = (
                not is_property and is_undocumented.get(node.name, True) and not ast.get_docstring(node)
            )
    classes = [n for n in body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
    methods = [name for node in classes for name in undocumented_functions(node.body, f"{node.name}.")]
    return [place + name for name, undocumented in is_undocumented.items() if undocumented] + methods


def test_every_bound_function_has_a_docstring() -> None:
    """Reads the stub, because the __doc__ of a bound function is never empty: it has the signature."""
    stub = ast.parse((ROOT / "python/hookline/_core.pyi").read_text())
    assert undocumented_functions(stub.body) == []
    sample = ast.parse("class A:\n  def f(self): ...\n  @property\n  def p(self): ...\ndef g(): 'a sentence'")
    assert undocumented_functions(sample.body) == ["A.f"]


def test_pytorch_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        readme("PyTorch") + "model(torch.full((2, 64), dist.get_rank() + 1.0)).sum().backward()\n"
        'print(net.weight.grad[0, 0].item(), ht.stats(model)["hook"])\n'
    )
    assert run(*TWO_RANKS, tmp_path / "program.py").splitlines() == ["3.0 fp16"] * 2


def test_numpy_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(readme("NumPy"))
    lines = [line.split() for line in run(*TWO_RANKS, tmp_path / "program.py").splitlines()]
    assert {rank for rank, *_ in lines} == {"0", "1"}
    # Ten steps with learning rate 0.1 and mean gradient 1.5 give -1.5, up to the error of int8.
    # 650 uncompressed float32 values would take 2600 bytes.
    assert all(abs(float(b) + 1.5) < 0.05 and int(sent) < 1000 for _, b, sent in lines), lines


def test_cpp_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.cpp").write_text(readme("C++"))
    options = ["-std=c++20", "-Wall", "-Werror", f"-I{ROOT}/include", f"-L{BUILD}/src", f"-Wl,-rpath,{BUILD}/src"]
    run("c++", *options, tmp_path / "program.cpp", "-o", tmp_path / "program", "-lhookline", "-pthread")
    assert sorted(run(*TWO_RANKS, tmp_path / "program").splitlines()) == ["0 1.5", "1 1.5"]
