"""The torch.distributed backend: every collective, on two and three ranks, beside Gloo."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = (Path(__file__).parent / "programs/collectives.py").read_text()
NAMES = re.findall(r"^@check\ndef (\w+)", PROGRAM, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [2, 3])
def test_collectives(checked: Callable[..., None], size: int, name: str) -> None:
    checked("collectives", size, name)


ASSERTED = (Path(__file__).parent / "programs/process_groups.py").read_text()


@pytest.mark.parametrize("name", re.findall(r"^@check\ndef (\w+)", ASSERTED, re.MULTILINE))
def test_what_pytorch_asserts_of_process_groups(checked: Callable[..., None], name: str) -> None:
    checked("process_groups", 3, name)
