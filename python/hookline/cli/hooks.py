"""`hookline hooks`: the communication hooks that there are, from the registry itself, with their options."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import Error, InvalidArgument, hook_options, registered_hooks


def written(name: str, alone: bool) -> str:
    """As the hook is written in a text, with the values that its options have where they are not given."""
    options = ", ".join(f"{option}={otherwise or '…'}" for option, (otherwise, _) in hook_options(name).items())
    return ("" if alone else "… | ") + name + (f"({options})" if options else "")


def import_modules(modules: Sequence[str]) -> None:
    """Imports modules that register hooks, from the current folder too, as python -m does."""
    if modules:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        importlib.import_module(module)


def main(arguments: Sequence[str]) -> int:
    """Prints a line or two for each hook, or what one hook's options may be."""
    parser = argparse.ArgumentParser(
        prog="hookline hooks",
        description="Lists the communication hooks with their options, as make_hook takes them. '… | w' goes around "
        "another hook: 'int8 | w'. With a name: what the options of that hook may be. Libraries of hooks in "
        "HOOKLINE_HOOK_PATH are listed, too.",
    )
    parser.add_argument("name", nargs="?", help="a hook")
    parser.add_argument(
        "--import",
        dest="modules",
        metavar="MODULE",
        action="append",
        default=[],
        help="import a module first that calls hookline.register_hook; may be given several times",
    )
    parsed = parser.parse_args(arguments)
    try:
        import_modules(parsed.modules)
        registered_hooks()
    except (ModuleNotFoundError, Error) as error:
        print(f"hookline hooks: {error}", file=sys.stderr)
        return 1
    name: str | None = parsed.name
    alone = registered_hooks(alone=True)
    if name is None:
        for hook, what in sorted(registered_hooks().items(), key=lambda item: (item[0] not in alone, item[0])):
            print(f"{written(hook, hook in alone)}\n    {what}")
        return 0
    try:
        print(f"{written(name, name in alone)}\n    {registered_hooks()[name]}")
    except (KeyError, InvalidArgument):
        print(f"hookline hooks: no hook is called '{name}'; there are {', '.join(registered_hooks())}", file=sys.stderr)
        return 2
    for option, (otherwise, expected) in hook_options(name).items():
        print(f"    {option}: {expected}; " + (otherwise if otherwise else "nothing") + " where it is not given")
    return 0
