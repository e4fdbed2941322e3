"""Every check of the programs in programs/: the backend of torch.distributed, hooks on PyTorch's DDP, and errors."""

import re
from collections.abc import Callable

import pytest
from torch_ranks import FOLDER

# Programs, and with how many ranks each is run.
SIZES = {
    "collectives": [2, 3],
    "process_groups": [3],  # what PyTorch asserts of process groups
    "errors_and_options": [3],
    "training": [2, 3],
    "pytorch_ddp": [2],  # what PyTorch asserts of its data parallelism
    "models": [2],
    "partly_used": [2],  # passes that do not come to all parameters, or not to their end
    "hooks": [2],
    "asserted": [2],  # what PyTorch asserts of hooks
    "other_way": [2],
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
def test_check(checked: Callable[..., None], program: str, size: int, name: str) -> None:
    checked(program, size, name)


def test_every_program_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"checks", *SIZES}
