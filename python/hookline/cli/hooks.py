"""`hookline hooks`: the communication hooks that there are, from the registry itself, with their options."""

import argparse
import sys
from collections.abc import Sequence

from .. import InvalidArgument, hook_options, registered_hooks


def written(name: str, alone: bool) -> str:
    """As the hook is written in a text, with the values that its options have where they are not given."""
    options = ", ".join(f"{option}={otherwise or '…'}" for option, (otherwise, _) in hook_options(name).items())
    return ("" if alone else "… | ") + name + (f"({options})" if options else "")


def main(arguments: Sequence[str]) -> int:
    """Prints a line or two for each hook, or what one hook's options may be."""
    parser = argparse.ArgumentParser(
        prog="hookline hooks",
        description="Lists the communication hooks with their options, as make_hook takes them. '… | w' goes around "
        "another hook: 'int8 | w'. With a name: what the options of that hook may be.",
    )
    parser.add_argument("name", nargs="?", help="a hook")
    name: str | None = parser.parse_args(arguments).name
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
