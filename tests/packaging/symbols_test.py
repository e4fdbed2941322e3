"""The library exports only symbols of namespace hookline."""

import json
import re

from building import BUILD, run

# Prefixes of symbols that the compiler generates for a class.
KIND = r"(typeinfo for |typeinfo name for |vtable for |VTT for |(non-)?virtual thunk to )?"
# The private names of a module are in a nested namespace, whose name is lower case.
PRIVATE = re.compile(r"hookline::[a-z0-9_]+::")


def exported() -> set[str]:
    lines = run("nm", "-DC", "--defined-only", BUILD / "src/libhookline.so").splitlines()
    return {line.split(maxsplit=2)[2] for line in lines}


def test_nothing_but_hookline_is_exported() -> None:
    names = exported()
    assert "typeinfo for hookline::InvalidArgument" in names
    assert [name for name in sorted(names) if not re.match(KIND + "hookline::", name)] == []


def test_every_function_of_the_public_namespace_is_exported() -> None:
    """Public functions must link."""
    compiled = json.loads((BUILD / "compile_commands.json").read_text())  # the folder may hold old objects
    objects = [c["output"] for c in compiled if re.search(r"/src/CMakeFiles/hookline_objects.dir/.*\.o$", c["output"])]
    lines = run("nm", "-C", "--defined-only", *objects).splitlines()
    functions = {line.split(maxsplit=2)[2] for line in lines if re.match(r"[0-9a-f]+ T hookline::", line)}
    assert functions
    assert sorted(name for name in functions - exported() if not PRIVATE.match(name)) == []
