"""The command `hookline`: dispatches to its subcommands."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from .. import __version__

# Subcommands and their help lines. Each is a module of the same name in this package, imported on first use, with a
# function `main(arguments) -> exit code`.
COMMANDS = {
    "run": "start a program as several ranks, on this machine or as one node of several",
    "bench": "measure allreduce on this machine",
    "debug": "find the slow or missing rank in flight recorder dumps",
    "hooks": "list the communication hooks and their options",
    "doctor": "check the installation, system limits and backends, and suggest fixes",
}


def usage() -> str:
    """Returns the help text of `hookline` itself."""
    lines = [f"  {name:<8} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        ["usage: hookline COMMAND ...", "", *lines, "", "See `hookline COMMAND --help`. Version: `hookline --version`."]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand and returns the exit code of the process."""
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
        print(f"hookline: unknown command '{line[0]}': expected one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f".{line[0]}", __name__)
    try:
        code: int = module.main(line[1:])
        print(end="", flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code
