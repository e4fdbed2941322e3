"""The library shows names of namespace hookline and nothing else."""

import json
import re

from building import BUILD, run

# What may stand before a name: kinds of symbols that the compiler makes for a class.
KIND = r"(typeinfo for |typeinfo name for |vtable for |VTT for |(non-)?virtual thunk to )?"


# The rooms, and the rooms inside backend/: each has a namespace for what it keeps to itself.
ROOMS = ["core", "kernel", "store", "codec", "backend", "group", "bucket", "hook", "reducer", "adapter"]
BACKENDS = ["embedded", "threads", "shm", "engine", "layered"]


def exported() -> set[str]:
    lines = run("nm", "-DC", "--defined-only", BUILD / "src/libhookline.so").splitlines()
    return {line.split(maxsplit=2)[2] for line in lines}


def test_nothing_but_hookline_is_exported() -> None:
    names = exported()
    assert "typeinfo for hookline::InvalidArgument" in names
    assert [name for name in sorted(names) if not re.match(KIND + "hookline::", name)] == []


def test_every_function_of_the_public_namespace_is_exported() -> None:
    """What a room keeps to itself is in a namespace of its own; the rest is for users, and they must link."""
    compiled = json.loads((BUILD / "compile_commands.json").read_text())  # the folder may hold old objects
    objects = [c["output"] for c in compiled if re.search(r"/src/CMakeFiles/hookline_objects.dir/.*\.o$", c["output"])]
    lines = run("nm", "-C", "--defined-only", *objects).splitlines()
    functions = {line.split(maxsplit=2)[2] for line in lines if re.match(r"[0-9a-f]+ T hookline::", line)}
    private = re.compile(rf"hookline::({'|'.join(ROOMS + BACKENDS)})::")
    assert functions
    assert sorted(name for name in functions - exported() if not private.match(name)) == []
