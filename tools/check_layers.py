"""Checks that each room includes only its own headers and those of the rooms below it.

Rooms, bottom first: core, kernel, store, codec, backend, group, bucket, hook, optimizer, reducer, adapter. Public
headers include the standard library and public headers only, except that those for libtorch include PyTorch's; backends
do not include each other, and src/ does not include bindings.
"""

import re
import sys
from pathlib import Path

ROOMS = ["core", "kernel", "store", "codec", "backend", "group", "bucket", "hook", "optimizer", "reducer", "adapter"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Headers at the top of include/hookline that every room may include. hookline.hpp includes them all: nobody may.
EVERYBODYS = {"version.hpp"}
# PyTorch's headers, which only the adapter for it may include.
TORCH = {"torch", "ATen", "c10", "c10d"}
# Not a backend by itself: the protocol that these backends have in common, over two kinds of memory.
SHARED = {"local": {"threads", "shm"}}


def rooms_of(path: Path) -> tuple[str, str] | None:
    """Room and, for a backend, its name, of a path below include/hookline or src; None for a file in no room."""
    if len(path.parts) < 2:
        return None
    if path.parts[0] == "backend" and len(path.parts) > 2:
        return "backend", path.parts[1]
    return path.parts[0], ""


def _not_a_room(name: str) -> str:
    return f"'{name}' is not a room; the rooms are {', '.join(ROOMS)}"


def check_include(room: str, part: str, target: Path) -> str | None:
    """Why a file of `room` may not include `target` (a path below include/hookline or src), or None."""
    place = rooms_of(target)
    if place is None:
        return None if target.name in EVERYBODYS else "only programs include this header"
    other, other_part = place
    if other not in ROOMS:
        return _not_a_room(other)
    if ROOMS.index(other) > ROOMS.index(room):
        return f"'{room}' lies below '{other}'"
    stranger = other_part not in {"", part} and part not in SHARED.get(other_part, set())
    if room == other == "backend" and part and stranger:
        return f"the backends '{part}' and '{other_part}' must not know each other"
    return None


def check_file(path: Path, place: Path, public: bool, source: Path) -> list[str]:
    """The problems of one file; `place` is its path below include/hookline or src."""
    found = []
    rooms = rooms_of(place)
    if rooms is not None and rooms[0] not in ROOMS:
        return [f"{path}: {_not_a_room(rooms[0])}"]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not (match := INCLUDE.match(line)):
            continue
        quote, name = match.groups()
        target = Path(name)
        ours = target.parts[0] == "hookline"
        private = not ours and (quote == '"' or (source / target).exists())
        why = None
        if target.parts[0] in TORCH and not place.as_posix().startswith("adapter/libtorch/"):
            why = "PyTorch's headers are included in adapter/libtorch only"
        elif public and not ours and target.parts[0] not in TORCH and ("." in name or private):
            why = "a public header includes the standard library and hookline only"
        elif rooms is not None and ours:
            why = check_include(*rooms, Path(*target.parts[1:]))
        elif rooms is not None and private:
            # A path from src/, or the name of a header beside the file.
            beside = (path.parent / target).exists() and not (source / target).exists()
            why = check_include(*rooms, place.parent / target if beside else target)
        if why:
            found.append(f"{path}:{number}: {name}: {why}")
    return found


def problems(root: Path) -> list[str]:
    """Every include of the tree that breaks the order."""
    found = []
    for base, public in ((root / "include/hookline", True), (root / "src", False)):
        for path in sorted([*base.rglob("*.hpp"), *base.rglob("*.cpp")]):
            found += check_file(path, path.relative_to(base), public, root / "src")
    return found


def main() -> int:
    """Prints the includes that break the order; 1 where there are some."""
    found = problems(Path(__file__).resolve().parent.parent)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
