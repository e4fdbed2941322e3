"""The file check finds long files, empty names and missing first sentences."""

from pathlib import Path

import pytest

import check_files


def check(root: Path, name: str, text: str) -> tuple[list[str], list[str]]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return check_files.problems(root, [name])


def test_a_file_in_order_passes(tmp_path: Path) -> None:
    assert check(tmp_path, "src/core/error.cpp", "// What an error is.\n") == ([], [])


@pytest.mark.parametrize("name", ["src/core/utils.cpp", "src/common/error.cpp", "tests/helpers.py"])
def test_a_name_that_says_nothing_is_an_error(tmp_path: Path, name: str) -> None:
    errors, _ = check(tmp_path, name, "// What an error is.\n")
    assert "does not say" in errors[0]


def test_length(tmp_path: Path) -> None:
    def file(lines: int) -> str:
        return "// What an error is.\n" * lines

    assert check(tmp_path, "a.cpp", file(400)) == ([], [])
    errors, warnings = check(tmp_path, "a.cpp", file(401))
    assert (len(errors), len(warnings)) == (0, 1)
    errors, warnings = check(tmp_path, "a.cpp", file(451))
    assert (len(errors), len(warnings)) == (1, 0)


def test_a_file_without_a_first_sentence_is_an_error(tmp_path: Path) -> None:
    errors, _ = check(tmp_path, "a.hpp", "#pragma once\n")
    assert "one sentence" in errors[0]
