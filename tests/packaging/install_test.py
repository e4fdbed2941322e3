"""`cmake --install` creates a relocatable tree that find_package(hookline) accepts."""

import re
import subprocess
from pathlib import Path

import pytest
from building import BUILD, CONSUMER, ROOT, WARNINGS, build_consumer, run


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the prefix of an installation that was moved to another directory."""
    first = tmp_path_factory.mktemp("install") / "first"
    run("cmake", "--install", BUILD, "--prefix", first)
    return first.rename(first.with_name("moved"))


def test_a_project_builds_against_the_installed_tree(installed: Path, tmp_path: Path) -> None:
    assert "dimensions: expected at most 16, got 1000" in build_consumer(installed, tmp_path / "build")


def test_the_installed_files_do_not_refer_to_the_build(installed: Path) -> None:
    for path in [*installed.rglob("*.cmake"), *installed.rglob("*.pc")]:
        text = path.read_text()
        assert str(ROOT) not in text, path
        assert not re.search(r"fmt|asio|hwy|ssl|crypto", text), f"{path} leaks a private dependency"


def pkg_config(installed: Path, *arguments: str) -> list[str]:
    (folder,) = (path.parent for path in installed.rglob("hookline.pc"))
    return run("env", f"PKG_CONFIG_PATH={folder}", "pkg-config", *arguments, "hookline").split()


@pytest.mark.parametrize("compiler", ["g++", "clang++-14"])
def test_pkg_config_finds_the_installed_tree(installed: Path, tmp_path: Path, compiler: str) -> None:
    flags = pkg_config(installed, "--cflags", "--libs")
    source = CONSUMER / "main.cpp"
    run(compiler, "-std=c++20", *WARNINGS, source, "-o", tmp_path / "program", *flags)
    (libraries,) = (path.parent for path in installed.glob("lib*/**/libhookline.so"))
    assert "dimensions: expected at most 16, got 1000" in run(
        "env", f"LD_LIBRARY_PATH={libraries}", tmp_path / "program"
    )
    (version,) = pkg_config(installed, "--modversion")
    assert f'"{version}"' in (ROOT / "include/hookline/version.hpp").read_text()


def compile_error(installed: Path, text: str, *options: str) -> str:
    """Returns the compiler's messages for a program that must not compile."""
    command = ["g++", "-std=c++20", "-fsyntax-only", *options, *pkg_config(installed, "--cflags"), "-x", "c++", "-"]
    result = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    assert result.returncode != 0, "it compiles"
    return result.stderr


def test_discarding_a_work_is_a_warning(installed: Path) -> None:
    drops = "#include <hookline/hookline.hpp>\nvoid f(hookline::ProcessGroup& g) { g.barrier(); }\n"
    assert "nodiscard" in compile_error(installed, drops, *WARNINGS)


@pytest.mark.parametrize("header", ["hookline.hpp", "group/process_group.hpp", "hook/comm_hook.hpp", "store/store.hpp"])
def test_compiling_without_rtti_is_an_error(installed: Path, header: str) -> None:
    assert "compile without -fno-rtti" in compile_error(installed, f"#include <hookline/{header}>\n", "-fno-rtti")


def test_static_libraries_are_rejected(tmp_path: Path) -> None:
    command = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DBUILD_SHARED_LIBS=OFF"]
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    assert result.returncode != 0
    assert "hookline is a shared library only" in " ".join(result.stderr.split())


def test_every_public_header_is_installed_and_no_other_file(installed: Path) -> None:
    def headers(folder: Path) -> set[Path]:
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}

    assert headers(installed / "include") == headers(ROOT / "include")


def test_the_library_has_a_soname(installed: Path) -> None:
    (library,) = (path for path in installed.glob("lib*/**/libhookline.so.*") if not path.is_symlink())
    assert re.search(r"SONAME.*\[libhookline\.so\.0\.1\]", run("readelf", "-d", library))
