"""Cleans up after a launcher that was killed: a separate program whose stdin is a pipe from the launcher.

The launcher writes one line for each rank's process group, and `done` after its own cleanup. If the pipe closes without
`done`, this program kills the process groups and removes the directory named on the command line.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Blocks until the launcher ends, then cleans up if the launcher did not."""
    lines = sys.stdin.read().split()
    if lines and lines[-1] == "done":
        return
    for group in lines:
        with contextlib.suppress(OSError):
            os.killpg(int(group), signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
