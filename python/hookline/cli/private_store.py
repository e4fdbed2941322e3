"""The place of the file store through which the ranks meet: a directory for nobody else, removed at the end."""

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


def places_in_memory() -> list[str]:
    """Where the directory had best be."""
    return [place for place in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm") if os.path.isabs(place)]


def make_directory() -> str:
    """A new directory with mode 0700, in memory where there is such a place."""
    for place in places_in_memory():
        with contextlib.suppress(OSError):
            return tempfile.mkdtemp(prefix="hookline-", dir=place)
    return tempfile.mkdtemp(prefix="hookline-")


class PrivateStore:
    """A context manager. Beside it runs guard.py, which cleans up if the launcher is killed before it can do so."""

    def __enter__(self) -> "PrivateStore":
        """Makes the directory; its first user makes the store's file. OSError if the system refuses."""
        self._directory = make_directory()
        self.path = os.path.join(self._directory, "store")
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), self._directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what is sent to the launcher's process group is not meant for the guard
            )
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Removes the directory. The ranks have ended."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._tell("done")
        with contextlib.suppress(BrokenPipeError):
            self._guard.communicate()

    def tell_ended(self, rank: int) -> None:
        """Tells ranks that wait for this one in init_process_group that it has ended with exit code 0."""
        with contextlib.suppress(Error):  # they wait until their timeout
            FileStore(self.path, timeout=1.0).append(ENDED_RANKS, f" {rank}")

    def watch(self, group: int) -> None:
        """Has a process group ended with the launcher, whatever ends that."""
        self._tell(str(group))

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody ended the guard; the ranks still die with the launcher
            self._guard.stdin.write(f"{line}\n".encode())
            self._guard.stdin.flush()
