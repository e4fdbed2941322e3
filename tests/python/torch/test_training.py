"""PyTorch's own data parallelism on the hookline backend, unchanged, beside Gloo."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = (Path(__file__).parent / "programs/training.py").read_text()
NAMES = re.findall(r"^@check\ndef (\w+)", PROGRAM, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [2, 3])
def test_training(checked: Callable[..., None], size: int, name: str) -> None:
    checked("training", size, name)


ASSERTED = (Path(__file__).parent / "programs/pytorch_ddp.py").read_text()


@pytest.mark.parametrize("name", re.findall(r"^@check\ndef (\w+)", ASSERTED, re.MULTILINE))
def test_what_pytorch_asserts_of_ddp(checked: Callable[..., None], name: str) -> None:
    checked("pytorch_ddp", 2, name)
