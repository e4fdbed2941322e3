"""Hooks of hookline on PyTorch's own DistributedDataParallel, and torch's groups and stores as hookline's."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "programs"


def names(program: str) -> list[str]:
    return re.findall(r"^@check\ndef (\w+)", (FOLDER / f"{program}.py").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", names("hooks"))
def test_hooks(checked: Callable[..., None], name: str) -> None:
    checked("hooks", 2, name)


@pytest.mark.parametrize("name", names("other_way"))
def test_the_other_way(checked: Callable[..., None], name: str) -> None:
    checked("other_way", 2, name)


@pytest.mark.parametrize("name", names("errors"))
def test_errors(checked: Callable[..., None], name: str) -> None:
    checked("errors", 2, name)


@pytest.mark.parametrize("name", names("asserted"))
def test_what_pytorch_asserts(checked: Callable[..., None], name: str) -> None:
    checked("asserted", 2, name)
