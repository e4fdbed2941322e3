"""The page of API names: every name on it exists."""

import re
from pathlib import Path
from typing import Any

import pytest

import hookline as hl

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/api-names.md"
HEADERS = "\n".join(path.read_text() for path in sorted((ROOT / "include").rglob("*.hpp")))
# The variables of the page, by the class of their values.
VARIABLES = {"ddp": "DataParallel", "model": "DataParallel", "hook": "CommHook", "optimizer": "Optimizer"}


def cells(column: int) -> list[str]:
    """Returns the code in a column of the tables that compare C++, Python and PyTorch."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [code for row in rows if len(row) == 4 for code in re.findall(r"`([^`]+)`", row[column])]


def resolve(name: str) -> Any:
    first, *rest = name.split(".")
    if first in VARIABLES:
        value: Any = getattr(hl.numpy if VARIABLES[first] == "DataParallel" else hl, VARIABLES[first])
    else:
        value = {"hl": hl, "ht": hl.torch}[first]
    for part in rest:
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"\b((?:hl|ht|ddp|model|hook|optimizer)(?:\.\w+)+)", " ".join(cells(2)))))
)
def test_python_names_exist(name: str) -> None:
    assert resolve(name) is not None


@pytest.mark.parametrize("name", sorted(set(re.findall(r"[A-Za-z_]\w{3,}", " ".join(cells(1))))))
def test_cpp_names_exist(name: str) -> None:
    assert re.search(rf"\b{name}\b", HEADERS), f"{name} is in no public header"


def test_the_tables_were_found() -> None:
    assert "save_state(hook, group)" in cells(1)
    assert "hl.GradBucket(array, sizes)" in cells(2)


def test_converters_are_public() -> None:
    converters = set(re.findall(r"^\| `ht\.(\w+)\(", PAGE.read_text(), re.MULTILINE))
    assert converters == {name for name in hl.torch.__all__ if re.search("from_torch|to_torch", name)}
