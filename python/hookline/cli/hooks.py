"""`hookline hooks`: lists the registered communication hooks with their options."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import Error, InvalidArgument, hook_options, registered_hooks


def hook_spec(name: str, is_wrapper: bool) -> str:
    """Returns the spec of a hook with the default values of its options."""
    options = ", ".join(f"{option}={default or '…'}" for option, (default, _) in hook_options(name).items())
    return ("… | " if is_wrapper else "") + name + (f"({options})" if options else "")


def import_modules(modules: Sequence[str]) -> None:
    """Imports modules that register hooks, also from the current directory, as python -m does."""
    if modules:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        importlib.import_module(module)


def main(arguments: Sequence[str]) -> int:
    """Prints all hooks, or the options of one hook, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hookline hooks",
        description="Lists the communication hooks with their options, as make_hook takes them. A hook shown as "
        "'… | w' wraps another hook: 'int8 | w'. With a name, shows the allowed values of that hook's options. "
        "Includes the hook libraries in HOOKLINE_HOOK_PATH.",
    )
    parser.add_argument("name", nargs="?", help="the name of a hook")
    parser.add_argument(
        "--import",
        dest="modules",
        metavar="MODULE",
        action="append",
        default=[],
        help="first import a module that calls hookline.register_hook; may be repeated",
    )
    parsed = parser.parse_args(arguments)
    try:
        import_modules(parsed.modules)
        registered_hooks()
    except (ModuleNotFoundError, Error) as error:
        print(f"hookline hooks: {error}", file=sys.stderr)
        return 1
    name: str | None = parsed.name
    base_hooks = registered_hooks(base_only=True)
    if name is None:
        for hook, text in sorted(registered_hooks().items(), key=lambda item: (item[0] not in base_hooks, item[0])):
            print(f"{hook_spec(hook, hook not in base_hooks)}\n    {text}")
        return 0
    try:
        print(f"{hook_spec(name, name not in base_hooks)}\n    {registered_hooks()[name]}")
    except (KeyError, InvalidArgument):
        hooks = ", ".join(registered_hooks())
        print(f"hookline hooks: unknown hook '{name}': expected one of {hooks}", file=sys.stderr)
        return 2
    for option, (default, expected) in hook_options(name).items():
        print(f"    {option}: {expected} (default: {default or 'none'})")
    return 0
