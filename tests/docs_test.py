"""The documentation matches the project: the modules, commands, variables, messages and files that they name exist."""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for folder in ("src", "include/hookline", "python")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".cpp", ".hpp", ".py"}
]
MODULES = sorted(path.name for path in (ROOT / "include/hookline").iterdir() if path.is_dir())


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_page(module: str) -> None:
    assert f"```{{api}} {module}\n" in (ROOT / f"docs/reference/{module}.md").read_text()
    assert f"reference/{module}" in (ROOT / "docs/index.md").read_text().splitlines()


def test_hookline_hpp_includes_every_public_header() -> None:
    folder = ROOT / "include"
    headers = {path.relative_to(folder).as_posix() for path in folder.rglob("*.hpp")}
    included = set(re.findall(r"#include <(.*)>", (folder / "hookline/hookline.hpp").read_text()))
    others = {name for name in headers - included if "libtorch" not in name}  # libtorch headers need PyTorch
    assert others == {"hookline/hookline.hpp", "hookline/core/export.hpp"}


def test_decisions_are_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "index.md").read_text().splitlines()
    assert [path.stem for path in sorted(folder.glob("*.md")) if path.stem != "index"] == [
        line for line in index if line.startswith("0")
    ]


PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_on_a_page_can_be_read(page: Path) -> None:
    """Checks the syntax of every Python block. Other tests run the complete programs."""
    for program in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        # Some blocks are parts of coroutines and contain `await`, so parse every block inside a coroutine.
        ast.parse("async def piece():\n" + textwrap.indent(program, "    "))


def test_programs_that_pages_name_are_there() -> None:
    missing = []
    for page in PAGES:
        for name in re.findall(
            r"(?<!build/)(?:examples|bench|tools|tests|docs|include|python)/[\w/-]+\.\w+", page.read_text()
        ):
            if not (ROOT / name).exists():
                missing.append(f"{page.name}: {name}")
    assert missing == []


def test_files_and_functions_of_the_life_of_a_gradient_are_there() -> None:
    page = (ROOT / "docs/concepts/life-of-a-gradient.md").read_text()
    names = [path.as_posix() for path in SOURCES]
    files = re.findall(r"`([\w/]+\.(?:cpp|hpp|py))`", page)
    assert len(files) > 30
    assert [name for name in files if not any(path.endswith("/" + name) for path in names)] == []
    text = "".join(path.read_text() for path in SOURCES)
    functions = re.findall(r"`(?:[\w:]+::)?(\w+)`", page)
    assert [name for name in functions if not re.search(rf"\b{name}\b", text)] == []


def test_every_environment_variable_is_in_the_table() -> None:
    code = "".join(path.read_text() for path in SOURCES)
    read = set(re.findall(r"(?:getenv\(|environ\.get\(|value_of\(environment, |variable\()\"(\w+)\"", code))
    assert len(read) > 20
    page = (ROOT / "docs/reference/environment.md").read_text()
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


COMMANDS = re.findall(r'^    "(\w+)": "', (ROOT / "python/hookline/cli/__init__.py").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_on_its_page(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hookline", command, "--help"], capture_output=True, text=True, check=True
    )
    options = set(re.findall(r"^  (--?[a-z][\w-]*)", done.stdout, re.MULTILINE)) - {"-h"}
    page = (ROOT / "docs/reference/cli.md").read_text()
    (section,) = re.findall(rf"^## hookline {command}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^\| `(--?[a-z][\w-]*)", section, re.MULTILINE)) == options


def test_every_error_is_in_the_index() -> None:
    types = re.findall(
        r"^class HOOKLINE_EXPORT (\w+)", (ROOT / "include/hookline/core/error.hpp").read_text(), re.MULTILINE
    )
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE)
    assert {"Error", *sections} == set(types)


def test_messages_of_the_error_index_are_those_of_the_sources() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    text = re.sub(r'"\s*\n\s*f?"', "", text)  # literals in several parts
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE)
    messages = [message for row in rows for message in re.findall("`([^`]+)`", row)]
    assert len(messages) > 60
    assert [m for m in messages if not all(part.strip(" :'()") in text for part in m.split("…"))] == []
