"""Makes the package staged in build/<preset>/python an installed distribution of .venv, without copying it there."""

import contextlib
import io
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from scikit_build_core.build import prepare_metadata_for_build_wheel

ROOT = Path(__file__).resolve().parent.parent


def write_metadata(stage: Path) -> None:
    """Writes hookline-<version>.dist-info beside the staged package, so that importlib.metadata finds it."""
    inputs = [ROOT / "pyproject.toml", ROOT / "include/hookline/version.hpp"]
    written = sorted(stage.glob("hookline-*.dist-info"))
    newest = max(path.stat().st_mtime for path in inputs)
    if len(written) == 1 and (written[0] / "METADATA").stat().st_mtime >= newest:
        return
    for old in written:
        shutil.rmtree(old)
    os.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()):
        prepare_metadata_for_build_wheel(str(stage))


def write_path_file(stage: Path) -> None:
    """Has the .venv look for packages in `stage`. A .venv that is a link is shared by several checkouts: left alone."""
    if (ROOT / ".venv").is_symlink():
        return
    path_file = Path(sysconfig.get_path("purelib")) / "hookline-development.pth"
    if not path_file.exists() or path_file.read_text() != f"{stage}\n":
        path_file.write_text(f"{stage}\n")


if __name__ == "__main__":
    staged = Path(sys.argv[1]).resolve()
    staged.mkdir(parents=True, exist_ok=True)
    write_metadata(staged)
    write_path_file(staged)
