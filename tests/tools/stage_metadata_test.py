"""The console scripts of the staged distributions in .venv/bin."""

import subprocess
from pathlib import Path

import stage_metadata


def test_commands_of_the_staged_distribution_run(tmp_path: Path) -> None:
    information = tmp_path / "sample-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[console_scripts]\nsample = platform:python_version_tuple\n")
    stage_metadata.write_commands(tmp_path, tmp_path)
    done = subprocess.run([tmp_path / "sample"], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("('3', ")  # sys.exit() prints a value that is not an integer
    assert done.returncode == 1
