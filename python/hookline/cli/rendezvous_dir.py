"""The private directory with the file store of a job on one host; it is removed when the job ends."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from .. import Error, FileStore

ENDED_RANKS = "hookline/ended"  # also in src/group/init.cpp


def tmpfs_dirs() -> list[str]:
    """Returns the directories in memory (tmpfs) to prefer, best first."""
    return [path for path in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm") if os.path.isabs(path)]


def make_directory() -> str:
    """Creates a directory with mode 0700, in tmpfs if possible, and returns its path."""
    for path in tmpfs_dirs():
        with contextlib.suppress(OSError):
            return tempfile.mkdtemp(prefix="hookline-", dir=path)
    return tempfile.mkdtemp(prefix="hookline-")


class RendezvousDir:
    """A context manager. It runs reaper.py beside the launcher, which cleans up if the launcher is killed."""

    def __enter__(self) -> "RendezvousDir":
        """Creates the directory; its first user creates the store's file. Raises OSError on failure."""
        self._directory = make_directory()
        self.path = os.path.join(self._directory, "store")
        try:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), self._directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # signals to the launcher's process group must not reach the reaper
            )
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Removes the directory. All ranks have exited."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._send("done")
        with contextlib.suppress(BrokenPipeError):
            self._reaper.communicate()

    def publish_exit(self, rank: int) -> None:
        """Publishes that a rank exited with code 0, for ranks that wait for it in init_process_group."""
        with contextlib.suppress(Error):  # without it they wait until their timeout
            FileStore(self.path, timeout=1.0).append(ENDED_RANKS, f" {rank}")

    def kill_with_launcher(self, group: int) -> None:
        """Makes the reaper kill a process group if the launcher dies."""
        self._send(str(group))

    def _send(self, line: str) -> None:
        assert self._reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reaper was killed; PR_SET_PDEATHSIG still ends the ranks
            self._reaper.stdin.write(f"{line}\n".encode())
            self._reaper.stdin.flush()
