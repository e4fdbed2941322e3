"""Training examples: accuracy, equivalence of two ranks with one process, and bitwise reproducibility."""

import os
import re
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
    """weights(name, ranks) trains the network and returns its weights. Results are cached by name."""
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
    assert any((one[name] != two[name]).any() for name in one)  # rounding differs: these are two separate runs


def test_the_same_run_twice_gives_the_same_bits(weights):
    first, second = weights("two", 2), weights("again", 2)
    assert all((first[name] == second[name]).all() for name in first)


def table_of(out: str) -> dict[str, dict[str, str]]:
    """Returns the rows of the table at the end of the output, by hook."""
    lines = out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["hook", "accuracy"])
    columns, *rows = [re.split(" {2,}", line.strip()) for line in lines[head:]]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


@pytest.fixture(scope="module")
def all_hooks():
    return run(2, PROGRAM, "--epochs", "12")


def test_it_learns_and_ends_in_a_table(all_hooks):
    rows = table_of(all_hooks)
    assert float(rows["allreduce"]["accuracy"].split()[0]) > 90
    assert int(rows["noop"]["bytes sent a step"]) == 0
    assert rows["noop"]["ratio"] == "-"
    assert int(rows["allreduce"]["bytes sent a step"]) == 4 * (64 * 128 + 128 + 128 * 10 + 10)
    assert rows["allreduce"]["ratio"] == "1.00x"
    errors = {name: float(row["relative error"]) for name, row in rows.items()}
    assert errors["allreduce"] < 1e-6 < errors["fp16"] < errors["int8"] < errors["int4"] < errors["noop"]
    for name, ratio in {"fp16": 2, "int8 | error_feedback": 3.9, "int4 | error_feedback": 7.4}.items():
        assert float(rows[name]["ratio"].rstrip("x")) == pytest.approx(ratio, rel=0.03)
        assert int(rows[name]["encode+decode"].split()[0]) > 0
    for name, ratio in {"powersgd(rank=1": 20.5, "powersgd(rank=2": 12, "batched_powersgd(rank=2": 24.3}.items():
        assert float(rows[f"{name}, start_iter=10)"]["ratio"].rstrip("x")) == pytest.approx(ratio, rel=0.01)
        assert 0.1 < errors[f"{name}, start_iter=10)"] < 1.5
    assert "12/12 epochs" in all_hooks


def test_every_hook_that_takes_the_mean_is_as_accurate_as_allreduce(all_hooks):
    rows = table_of(all_hooks) | table_of(run(2, PROGRAM, "--epochs", "12", "--hook", "int4(rounding=stochastic)"))
    accuracy = {name: float(row["accuracy"].split()[0]) for name, row in rows.items()}
    exact = accuracy.pop("allreduce")
    del accuracy["noop"]  # noop does not reduce: each rank trains on its own half of the data
    assert len(accuracy) >= 9
    assert accuracy == {name: pytest.approx(exact, abs=1) for name in accuracy}


def test_post_local_sgd_sends_nothing_between_two_averages(all_hooks):
    (row,) = (row for name, row in table_of(all_hooks).items() if name.startswith("post_local_sgd("))
    assert int(row["bytes sent a step"]) == 0
    assert float(row["accuracy"].split()[0]) > 90


def test_another_optimizer():
    rows = table_of(run(2, PROGRAM, "--epochs", "6", "--hook", "fp16", "--optimizer", "adamw(lr=0.01)"))
    assert float(rows["fp16"]["accuracy"].split()[0]) > 90


def test_the_program_in_cpp():
    pictures = ROOT / "examples/digits/digits.bin"
    for optimizer in ("sgd(lr=0.2)", "adamw(lr=0.01)"):
        out = run(2, BUILD / "examples/example_digits", pictures, "allreduce", "10", optimizer)
        assert out.startswith("allreduce | overlap(")
        assert float(out.split("accuracy ")[1].split()[0]) > 90


def test_a_hook_as_a_coroutine():
    out = run(2, BUILD / "examples/example_training").splitlines()
    whole_steps = 0.5 * (1 - 0.9**10)  # towards the mean of the ranks' values
    clipped_steps = 10 * 0.1 / 650**0.5  # each with a gradient of 650 numbers whose norm is 1
    assert sum(f"b is {whole_steps + clipped_steps:.4f};" in line for line in out) == 2
