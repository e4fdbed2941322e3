"""The Python programs of examples/, and the programs that stand in the README, run as they are."""

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


def readme(language: str) -> str:
    """The program in the README that is written in this language."""
    (program,) = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return program


PROGRAMS = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "examples/hooks").glob("*.py")])
TWO_RANKS = [sys.executable, "-m", "hookline", "run", "-n", "2"]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_example(path: Path) -> None:
    """Programs with a process group are started as two ranks."""
    launcher = TWO_RANKS if "init_process_group" in path.read_text() else [sys.executable]
    assert run(*launcher, path)


def test_every_public_name_has_an_example_and_says_what_it_is() -> None:
    text = (ROOT / "examples/names.py").read_text()
    assert [name for name in hl.__all__ if not re.search(rf"\bhl\.{name}\b", text)] == []
    assert [name for name in hl.__all__ if name != "ArrayLike" and not getattr(hl, name).__doc__] == []


def functions_without_a_sentence(body: list[ast.stmt], place: str = "") -> list[str]:
    """Of a stub: functions and methods that are public, and of whose overloads none says what it is for."""
    silent: dict[str, bool] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            is_property = bool(decorators & {"property", f"{node.name}.setter"})
            silent[node.name] = not is_property and silent.get(node.name, True) and not ast.get_docstring(node)
    inside = [n for n in body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
    below = [name for node in inside for name in functions_without_a_sentence(node.body, f"{node.name}.")]
    return [place + name for name, is_silent in silent.items() if is_silent] + below


def test_every_bound_function_says_what_it_is() -> None:
    """The stub is asked, as the __doc__ of a bound function always has its signature."""
    stub = ast.parse((ROOT / "python/hookline/_core.pyi").read_text())
    assert functions_without_a_sentence(stub.body) == []
    silent = ast.parse("class A:\n  def f(self): ...\n  @property\n  def p(self): ...\ndef g(): 'a sentence'")
    assert functions_without_a_sentence(silent.body) == ["A.f"]


# A class for the use of libtorch::DistributedDataParallel, which has no library to hide it in.
NOT_FOR_USERS = {"GradientAverager"}
DECLARATION = re.compile(
    r"""^(?:(?:class|struct|enum\ class)\ (?:\[\[nodiscard\]\]\ )?(?:HOOKLINE_EXPORT\ )?(\w+)(?:\ final)?(?:\ :.*)?\ \{
          | using\ (\w+)\ =
          | inline\ constexpr\ [\w:]+\ (\w+)\ ?[={]
          | (?!using|template|class|struct|enum|static_assert|inline\ constexpr)[\w\[].*?[\s&*](?!operator)(\w+)\()""",
    re.MULTILINE | re.VERBOSE,
)


def public_cpp_names() -> set[str]:
    """The types, functions and constants that stand in namespace hookline itself, not in that of a room."""
    names = set()
    for header in (ROOT / "include").rglob("*.hpp"):
        text = re.sub(
            r"^namespace (?!hookline)\w+ \{\n.*?^\}(  // namespace \w+)?$",
            "",
            header.read_text(),
            flags=re.DOTALL | re.MULTILINE,
        )
        names |= {next(filter(None, groups)) for groups in DECLARATION.findall(text)}
    return names


def test_every_public_cpp_name_is_in_a_program_or_on_a_page() -> None:
    names = public_cpp_names()
    assert len(names) > 200
    assert {"Tensor", "Future", "OpType", "HookPtr", "kDefaultTimeout", "make_hook", "visit_dtype"} <= names
    shown = [path.read_text() for path in (ROOT / "examples").rglob("*.cpp")]
    for page in (ROOT / "docs").rglob("*.md"):
        blocks = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
        shown += blocks.findall(page.read_text()) + re.findall(r"`[^`\n]+`", blocks.sub("", page.read_text()))
    words = set(re.findall(r"\w+", "\n".join(shown)))
    assert sorted(names - words) == sorted(NOT_FOR_USERS)


def test_python_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(readme("python"))
    lines = [line.split() for line in run(*TWO_RANKS, tmp_path / "program.py").splitlines()]
    assert {rank for rank, *_ in lines} == {"0", "1"}
    # Ten steps of 0.1 by the mean of 1 and 2, whatever eight bits lose of it; and fewer bytes than 650 floats have.
    assert all(abs(float(b) + 1.5) < 0.05 and int(sent) < 1000 for _, b, sent in lines), lines


def test_cpp_program_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "program.cpp").write_text(readme("cpp"))
    options = ["-std=c++20", "-Wall", "-Werror", f"-I{ROOT}/include", f"-L{BUILD}/src", f"-Wl,-rpath,{BUILD}/src"]
    run("c++", *options, tmp_path / "program.cpp", "-o", tmp_path / "program", "-lhookline", "-pthread")
    assert sorted(run(*TWO_RANKS, tmp_path / "program").splitlines()) == ["0 1.5", "1 1.5"]
