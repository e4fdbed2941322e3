"""The example for PyTorch, started as its users do."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples/torch/char_transformer.py"


def test_the_transformer_learns_under_torchrun() -> None:
    options = ["--steps", "30", "--width", "32", "--layers", "1", "--batch", "8", "--hook", "int8 | error_feedback"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, str(EXAMPLE), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.3, losses
    assert "bytes sent in the last step" in done.stdout
