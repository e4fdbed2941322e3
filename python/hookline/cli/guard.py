"""Cleans up after a launcher that was killed: run as a program of its own, with the launcher's pipe as its stdin.

The launcher writes one line for each rank's process group, and `done` when it has cleaned up by itself. If the pipe
ends without `done`, nobody else is left to end the groups and to remove the directory named on the command line.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Waits for the launcher's end."""
    lines = sys.stdin.read().split()
    if lines and lines[-1] == "done":
        return
    for group in lines:
        with contextlib.suppress(OSError):
            os.killpg(int(group), signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
