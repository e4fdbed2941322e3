"""The examples that train: digits are learnt, half batches on two ranks are one whole batch, and bits repeat."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))
PROGRAM = ROOT / "examples/digits/digits.py"


def run(ranks: int, *command: str | Path) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "hookline", "run", "-n", str(ranks), *map(str, command)],
        text=True,
        capture_output=True,
        check=False,
        timeout=100,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """weights(name, ranks) trains and returns the network; each name once."""
    folder = tmp_path_factory.mktemp("digits")

    def train(name: str, ranks: int):
        path = folder / f"{name}.npz"
        if not path.exists():
            run(ranks, PROGRAM, "--hook", "allreduce", "--epochs", "3", "--save", path)
        return dict(np.load(path))

    return train


def test_two_ranks_with_half_batches_are_one_with_the_whole(weights):
    one, two = weights("one", 1), weights("two", 2)
    for name, value in one.items():
        np.testing.assert_allclose(value, two[name], rtol=1e-4, atol=1e-5)
    assert any((one[name] != two[name]).any() for name in one)  # so the comparison says something


def test_the_same_run_twice_gives_the_same_bits(weights):
    first, second = weights("two", 2), weights("again", 2)
    assert all((first[name] == second[name]).all() for name in first)


def test_it_learns_and_ends_in_a_table():
    out = run(2, PROGRAM, "--epochs", "12").splitlines()
    table = [line.split() for line in out if "%" in line and "[" not in line]
    rows = {row[0]: row for row in table}
    assert float(rows["allreduce"][1]) > 90
    assert int(rows["noop"][3]) == 0
    assert int(rows["allreduce"][3]) == 4 * (64 * 128 + 128 + 128 * 10 + 10)
    assert any("12/12 epochs" in line for line in out)


def test_the_program_in_cpp():
    out = run(2, BUILD / "examples/example_digits", ROOT / "examples/digits/digits.bin", "allreduce", "10")
    assert out.startswith("allreduce: accuracy ")
    assert float(out.split()[2]) > 90


def test_a_hook_as_a_coroutine():
    out = run(2, BUILD / "examples/example_mean_then_clip").splitlines()
    assert sum("hook allreduce: b 1.0000, w 0.5000" in line for line in out) == 2
    norm = (640 * 0.5**2 + 10 * 1.0**2) ** 0.5
    clipped = f"hook mean_then_clip: b {1 / norm:.4f}, w {0.5 / norm:.4f}"
    assert sum(clipped in line for line in out) == 2
