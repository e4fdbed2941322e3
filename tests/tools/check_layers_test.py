"""The layer check accepts a valid source tree and reports each kind of forbidden include."""

from pathlib import Path

import pytest

import check_layers


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


GOOD = {
    "include/hookline/core/error.hpp": "#include <string>\n",
    "include/hookline/store/store.hpp": "#include <vector>\n#include <hookline/core/error.hpp>\n",
    "src/core/error.cpp": "#include <hookline/core/error.hpp>\n#include <fmt/core.h>\n",
    "src/store/table.hpp": "#include <map>\n",
    "src/store/table.cpp": '#include "store/table.hpp"\n#include <sys/socket.h>\n',
    "src/backend/shm/segment.cpp": '#include "kernel/sum.hpp"\n#include "segment.hpp"\n',
    "src/backend/shm/segment.hpp": '#include "backend/local/memory.hpp"\n',
    "src/backend/local/memory.hpp": "",
    "src/kernel/sum.hpp": "#include <hookline/version.hpp>\n",
    "include/hookline/adapter/libtorch/data_parallel.hpp": "#include <torch/nn/module.h>\n",
    "src/adapter/libtorch/backend.cpp": "#include <torch/csrc/distributed/c10d/Backend.hpp>\n",
}


def test_a_valid_tree_passes(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert check_layers.problems(tmp_path) == []


def test_this_repository_passes() -> None:
    assert check_layers.problems(Path(check_layers.__file__).parent.parent) == []


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("src/core/a.cpp", "#include <hookline/store/store.hpp>\n", "module 'core' is below 'store'"),
        ("src/core/a.cpp", '#include "store/table.hpp"\n', "module 'core' is below 'store'"),
        ("src/core/a.cpp", "#include <store/table.hpp>\n", "module 'core' is below 'store'"),
        ("include/hookline/core/a.hpp", "#include <hookline/store/store.hpp>\n", "module 'core' is below 'store'"),
        ("include/hookline/core/a.hpp", "#include <fmt/format.h>\n", "only the standard library and public headers"),
        (
            "include/hookline/store/a.hpp",
            '#include "store/table.hpp"\n',
            "only the standard library and public headers",
        ),
        ("src/backend/shm/a.cpp", '#include "backend/gloo/pair.hpp"\n', "must not include backend"),
        ("src/backend/gloo/a.cpp", '#include "backend/local/memory.hpp"\n', "must not include backend"),
        ("src/backend/local/a.cpp", '#include "backend/shm/segment.hpp"\n', "must not include backend"),
        ("src/store/a.cpp", "#include <hookline/hookline.hpp>\n", "only programs may include this header"),
        ("src/store/a.cpp", "#include <hookline/plumbing/pipe.hpp>\n", "'plumbing' is not a module"),
        ("src/adapter/lanes.cpp", "#include <ATen/core/Tensor.h>\n", "only adapter/libtorch may include"),
        ("include/hookline/reducer/r.hpp", "#include <torch/torch.h>\n", "only adapter/libtorch may include"),
        (
            "include/hookline/adapter/libtorch/b.hpp",
            "#include <fmt/format.h>\n",
            "only the standard library and public headers",
        ),
        ("src/plumbing/pipe.cpp", "", "'plumbing' is not a module"),
    ],
)
def test_forbidden_includes_are_reported(tmp_path: Path, name: str, text: str, reason: str) -> None:
    write(tmp_path, GOOD | {name: text})
    (problem,) = check_layers.problems(tmp_path)
    assert name in problem
    assert reason in problem
