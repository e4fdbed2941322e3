"""Registers the staged packages in build/<preset>/python as installed distributions of .venv, without copying them."""

import contextlib
import importlib.metadata
import io
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from scikit_build_core.build import prepare_metadata_for_build_wheel

ROOT = Path(__file__).resolve().parent.parent


# The distributions of this project and the directories of their pyproject.toml.
DISTRIBUTIONS = {"hookline": ROOT, "hookline_torch": ROOT / "python/torch_extension"}


def write_metadata(stage: Path, name: str, folder: Path) -> None:
    """Writes <name>-<version>.dist-info next to the staged package, for importlib.metadata."""
    inputs = [folder / "pyproject.toml", ROOT / "include/hookline/version.hpp"]
    written = sorted(stage.glob(f"{name}-*.dist-info"))
    newest = max(path.stat().st_mtime for path in inputs)
    if len(written) == 1 and (written[0] / "METADATA").stat().st_mtime >= newest:
        return
    for old in written:
        shutil.rmtree(old)
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        prepare_metadata_for_build_wheel(str(stage))


def write_path_file(stage: Path) -> None:
    """Adds `stage` to the package path of the .venv."""
    path_file = Path(sysconfig.get_path("purelib")) / "hookline-development.pth"
    if not path_file.exists() or path_file.read_text() != f"{stage}\n":
        path_file.write_text(f"{stage}\n")


def write_commands(stage: Path, scripts: Path) -> None:
    """Writes the console scripts of the staged distributions into `scripts`, as pip does."""
    staged = importlib.metadata.distributions(path=[str(stage)])
    commands = [command for d in staged for command in d.entry_points.select(group="console_scripts")]
    for command in commands:
        script = scripts / command.name
        lines = [
            f"#!{sys.executable}",
            "import sys",
            f"from {command.module} import {command.attr}",
            f"sys.exit({command.attr}())",
        ]
        text = "".join(f"{line}\n" for line in lines)
        if not script.exists() or script.read_text() != text:
            script.write_text(text)
            script.chmod(0o755)


if __name__ == "__main__":
    staged = Path(sys.argv[1]).resolve()
    staged.mkdir(parents=True, exist_ok=True)
    for distribution, project in DISTRIBUTIONS.items():
        write_metadata(staged, distribution, project)
    # A symbolic link .venv is shared by several checkouts, so leave it unchanged.
    if not (ROOT / ".venv").is_symlink():
        write_path_file(staged)
        write_commands(staged, Path(sysconfig.get_path("scripts")))
