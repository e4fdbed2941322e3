"""Runs each test program once for all of its checks, since `import torch` takes seconds."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from torch_ranks import FOLDER, outcomes, start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises the timeout: the first test of a module waits for a program with many checks."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="module")
def run_check(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """run_check(program, size, name) asserts that a check passed on all ranks. Each program runs once."""
    ran: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def run(program: str, size: int, name: str) -> None:
        if (program, size) not in ran:
            folder = tmp_path_factory.mktemp(program)
            ended = outcomes(start(FOLDER / f"{program}.py", size, folder))
            files = [folder / f"results{rank}.json" for rank in range(size)]
            missing = "\n".join(f"rank {r}: exit status {code}\n{text}" for r, (code, text) in enumerate(ended))
            ran[program, size] = [json.loads(f.read_text()) if f.exists() else {"missing": missing} for f in files]
            if any(code != 0 for code, _ in ended):
                for results in ran[program, size]:
                    results["end"] = missing
        for rank, results in enumerate(ran[program, size]):
            assert "missing" not in results, results["missing"]
            assert results.get(name) == "ok", f"rank {rank}: {results.get(name, 'not reached')}"
            assert "end" not in results, results["end"]

    return run
