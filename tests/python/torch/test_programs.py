"""Runs all checks of programs/: the torch.distributed backend, hooks on PyTorch's DDP, and errors."""

import re
from collections.abc import Callable

import pytest
from torch_ranks import FOLDER

# The numbers of ranks with which each program runs.
SIZES = {
    "collectives": [2, 3],
    "process_groups": [3],  # assertions of PyTorch's process group tests
    "errors_and_options": [3],
    "training": [2, 3],
    "pytorch_ddp": [2],  # assertions of PyTorch's DDP tests
    "models": [2],
    "unused_parameters": [2],
    "hook_arguments": [2],
    "hooks": [2],
    "pytorch_parity": [2],  # assertions of PyTorch's hook tests
    "shared_groups": [2],
    "torch_groups": [2],
    "errors": [2],
}


def names(program: str) -> list[str]:
    text = (FOLDER / f"{program}.py").read_text()
    found = re.findall(r"^@check\ndef (\w+)", text, re.MULTILINE)
    assert len(found) == text.count("@check") > 0
    return found


@pytest.mark.parametrize(
    ("program", "size", "name"),
    [(program, size, name) for program, sizes in SIZES.items() for size in sizes for name in names(program)],
)
def test_check(run_check: Callable[..., None], program: str, size: int, name: str) -> None:
    run_check(program, size, name)


def test_every_program_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"checks", "hook_training", *SIZES}
