"""Checks that each module includes only its own headers and those of lower modules.

Modules, lowest first: core, kernel, store, codec, backend, group, bucket, hook, optimizer, reducer, adapter. Public
headers include only the standard library and public headers; those for libtorch also include PyTorch's. Backends do not
include each other, and src/ does not include bindings.
"""

import re
import sys
from pathlib import Path

LAYERS = ["core", "kernel", "store", "codec", "backend", "group", "bucket", "hook", "optimizer", "reducer", "adapter"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Top-level headers of include/hookline that all modules may include. hookline.hpp is only for programs.
SHARED_HEADERS = {"version.hpp"}
# PyTorch's headers, which only the libtorch adapter may include.
TORCH = {"torch", "ATen", "c10", "c10d"}
# Backend directories that are shared by several backends.
SHARED = {"local": {"threads", "shm"}}


def module_of(path: Path) -> tuple[str, str] | None:
    """Returns the module and the backend of a path below include/hookline or src; None for top-level files."""
    if len(path.parts) < 2:
        return None
    if path.parts[0] == "backend" and len(path.parts) > 2:
        return "backend", path.parts[1]
    return path.parts[0], ""


def _not_a_module(name: str) -> str:
    return f"'{name}' is not a module: expected one of {', '.join(LAYERS)}"


def check_include(module: str, backend: str, target: Path) -> str | None:
    """Returns the reason why a module may not include `target` (a path below include/hookline or src), or None."""
    found = module_of(target)
    if found is None:
        return None if target.name in SHARED_HEADERS else "only programs may include this header"
    other, other_backend = found
    if other not in LAYERS:
        return _not_a_module(other)
    if LAYERS.index(other) > LAYERS.index(module):
        return f"module '{module}' is below '{other}'"
    is_foreign = other_backend not in {"", backend} and backend not in SHARED.get(other_backend, set())
    if module == other == "backend" and backend and is_foreign:
        return f"backend '{backend}' must not include backend '{other_backend}'"
    return None


def check_file(path: Path, relative_path: Path, public: bool, source: Path) -> list[str]:
    """Returns the problems of one file; `relative_path` is its path below include/hookline or src."""
    found = []
    module = module_of(relative_path)
    if module is not None and module[0] not in LAYERS:
        return [f"{path}: {_not_a_module(module[0])}"]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not (match := INCLUDE.match(line)):
            continue
        quote, name = match.groups()
        target = Path(name)
        ours = target.parts[0] == "hookline"
        private = not ours and (quote == '"' or (source / target).exists())
        problem = None
        if target.parts[0] in TORCH and not relative_path.as_posix().startswith("adapter/libtorch/"):
            problem = "only adapter/libtorch may include PyTorch's headers"
        elif public and not ours and target.parts[0] not in TORCH and ("." in name or private):
            problem = "a public header may include only the standard library and public headers"
        elif module is not None and ours:
            problem = check_include(*module, Path(*target.parts[1:]))
        elif module is not None and private:
            # A path relative to src/, or to the directory of the file.
            is_sibling = (path.parent / target).exists() and not (source / target).exists()
            problem = check_include(*module, relative_path.parent / target if is_sibling else target)
        if problem:
            found.append(f"{path}:{number}: {name}: {problem}")
    return found


def problems(root: Path) -> list[str]:
    """Returns all forbidden includes of a source tree."""
    found = []
    for base, public in ((root / "include/hookline", True), (root / "src", False)):
        for path in sorted([*base.rglob("*.hpp"), *base.rglob("*.cpp")]):
            found += check_file(path, path.relative_to(base), public, root / "src")
    return found


def main() -> int:
    """Prints the forbidden includes of this repository and returns the exit code."""
    found = problems(Path(__file__).resolve().parent.parent)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
