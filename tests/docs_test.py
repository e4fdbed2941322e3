"""Every room has a page, every page is in the index, and what pages show of programs is at least well-formed."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path.name for path in (ROOT / "include/hookline").iterdir() if path.is_dir())


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_page(room: str) -> None:
    assert f"```{{room}} {room}\n" in (ROOT / f"docs/{room}.md").read_text()
    assert room in (ROOT / "docs/index.md").read_text().splitlines()


def test_decisions_are_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "index.md").read_text().splitlines()
    assert [path.stem for path in sorted(folder.glob("*.md")) if path.stem != "index"] == [
        line for line in index if line.startswith("0")
    ]


PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_on_a_page_can_be_read(page: Path) -> None:
    """Whole programs are run by other tests; this finds what cannot even be parsed."""
    for program in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        # Pieces of coroutines have an await, and those of classes a body that is left out.
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


def test_files_and_functions_of_the_walk_are_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    sources = [*(ROOT / "src").rglob("*.[ch]pp"), *(ROOT / "include/hookline").rglob("*.hpp")]
    sources += [*(ROOT / "python").rglob("*.[ch]pp"), *(ROOT / "python").rglob("*.py")]
    names = [path.as_posix() for path in sources]
    files = re.findall(r"`([\w/]+\.(?:cpp|hpp|py))`", page)
    assert len(files) > 30
    assert [name for name in files if not any(path.endswith("/" + name) for path in names)] == []
    text = "".join(path.read_text() for path in sources)
    functions = re.findall(r"`(?:[\w:]+::)?(\w+)`", page)
    assert [name for name in functions if not re.search(rf"\b{name}\b", text)] == []


def test_errors_are_in_the_index() -> None:
    types = re.findall(
        r"^class HOOKLINE_EXPORT (\w+)", (ROOT / "include/hookline/core/error.hpp").read_text(), re.MULTILINE
    )
    page = (ROOT / "docs/errors.md").read_text()
    assert {name for name in types if f"## {name}\n" not in page} <= {"Error"}
    assert len(types) >= 8
