"""`cmake --install` gives a tree that can be moved and that find_package(hookline) works with."""

import re
from pathlib import Path

import pytest
from building import BUILD, ROOT, build_consumer, run


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of an installed tree, moved after the installation."""
    first = tmp_path_factory.mktemp("install") / "first"
    run("cmake", "--install", BUILD, "--prefix", first)
    return first.rename(first.with_name("moved"))


def test_a_project_builds_against_the_installed_tree(installed: Path, tmp_path: Path) -> None:
    assert "dimensions, not 1000" in build_consumer(installed, tmp_path / "build")


def test_the_installed_files_name_nothing_of_the_build(installed: Path) -> None:
    for path in installed.rglob("*.cmake"):
        text = path.read_text()
        assert str(ROOT) not in text, path
        assert not re.search(r"fmt|asio|hwy|ssl|crypto", text), f"{path} leaks a private dependency"


def test_every_public_header_is_installed_and_no_other_file(installed: Path) -> None:
    def headers(folder: Path) -> set[Path]:
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}

    assert headers(installed / "include") == headers(ROOT / "include")


def test_the_library_has_a_soname(installed: Path) -> None:
    (library,) = (path for path in installed.glob("lib*/**/libhookline.so.*") if not path.is_symlink())
    assert re.search(r"SONAME.*\[libhookline\.so\.0\.1\]", run("readelf", "-d", library))
