"""The command `hookline`: finds the sub-command that was asked for and hands it the rest of the line."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from .. import __version__

# Sub-commands, and what each does. A command is the module of its name beside this file, with its `main(arguments) ->
# exit code`, and imported only when it is asked for.
COMMANDS = {
    "run": "start a program as several ranks, on this machine or as one node of several",
    "bench": "measure an allreduce on this machine",
    "debug": "say which rank is behind, from the dumps of recorded groups",
    "hooks": "list the communication hooks and their options",
    "doctor": "say what is installed and allowed here, whether two ranks can talk, and what to fix",
}


def usage() -> str:
    """The help text of `hookline` itself."""
    lines = [f"  {name:<8} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        ["usage: hookline COMMAND ...", "", *lines, "", "`hookline COMMAND --help` explains one; `hookline --version`."]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one sub-command; returns the exit code of the process."""
    line = list(sys.argv[1:] if arguments is None else arguments)
    if not line:
        print(usage(), file=sys.stderr)
        return 2
    if line[0] in ("-h", "--help"):
        print(usage())
        return 0
    if line[0] == "--version":
        print(f"hookline {__version__}")
        return 0
    if line[0] not in COMMANDS:
        print(f"hookline: there is no command '{line[0]}'; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f".{line[0]}", __name__)
    try:
        code: int = module.main(line[1:])
        print(end="", flush=True)
    except BrokenPipeError:  # whoever reads this, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code
