"""Runs the examples for PyTorch and libtorch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))
EXAMPLE = ROOT / "examples/torch/char_transformer.py"


def test_the_transformer_learns_under_torchrun() -> None:
    options = ["--steps", "30", "--width", "32", "--layers", "1", "--batch", "8", "--hook", "int8 | error_feedback"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, str(EXAMPLE), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=330, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.3, losses
    assert "bytes sent in the last step" in done.stdout


@pytest.mark.parametrize(
    "launcher", [["hookline", "run", "-n", "2"], ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]]
)
def test_the_first_steps(launcher: list[str]) -> None:
    command = [sys.executable, "-m", *launcher, str(ROOT / "examples/torch/first_steps.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=330, check=False)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"sending ([\d.]+) times less", done.stdout)
    assert len(rates) == 2, done.stdout
    assert float(rates[0]) > 2
    weights = re.findall(r"weights ([\d.]+); \d+ bytes sent in a step", done.stdout)
    assert len(weights) == 2, done.stdout
    assert weights[0] == weights[1]


def libtorch_training(ranks: int, *arguments: str) -> list[tuple[float, str, int]]:
    """Returns the accuracy, the weights and the sent bytes of each rank."""
    program = str(BUILD / "examples/example_libtorch_training")
    command = [sys.executable, "-m", "hookline", "run", "-n", str(ranks), program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=330, check=False)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"accuracy ([\d.]+) %, weights ([\d.]+), (\d+) bytes", done.stdout)
    assert len(lines) == ranks, done.stdout
    return [(float(right), weights, int(sent)) for right, weights, sent in lines]


def test_libtorch_learns_the_same_on_any_number_of_ranks() -> None:
    ((alone, weights, _),) = libtorch_training(1)
    assert alone > 95
    two = libtorch_training(2)
    assert len({weights for _, weights, _ in two}) == 1
    assert abs(float(two[0][1]) - float(weights)) < 1e-3
    small = libtorch_training(2, "powersgd(rank=2, start_iter=2)")
    assert len({weights for _, weights, _ in small}) == 1
    assert small[0][2] < two[0][2]
    assert all(right > 95 for right, _, _ in small)
