"""The file check reports long files, meaningless names and missing first comments."""

from pathlib import Path

import pytest

import check_files


def check(root: Path, name: str, text: str) -> tuple[list[str], list[str]]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return check_files.problems(root, [name])


def test_a_valid_file_passes(tmp_path: Path) -> None:
    assert check(tmp_path, "src/core/error.cpp", "// The error types.\n") == ([], [])


@pytest.mark.parametrize("name", ["src/core/utils.cpp", "src/common/error.cpp", "tests/helpers.py"])
def test_a_meaningless_name_is_an_error(tmp_path: Path, name: str) -> None:
    errors, _ = check(tmp_path, name, "// The error types.\n")
    assert "does not describe" in errors[0]


def test_length(tmp_path: Path) -> None:
    def file(lines: int) -> str:
        return "// The error types.\n" * lines

    assert check(tmp_path, "a.cpp", file(400)) == ([], [])
    errors, warnings = check(tmp_path, "a.cpp", file(401))
    assert (len(errors), len(warnings)) == (0, 1)
    errors, warnings = check(tmp_path, "a.cpp", file(451))
    assert (len(errors), len(warnings)) == (1, 0)


def test_a_file_without_a_first_comment_is_an_error(tmp_path: Path) -> None:
    errors, _ = check(tmp_path, "a.hpp", "#pragma once\n")
    assert "must be a comment" in errors[0]
