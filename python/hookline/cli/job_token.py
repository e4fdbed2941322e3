"""The token of a job: the secret that its launchers and ranks share, from a file, the environment, or made here."""

import contextlib
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Mapping

VARIABLE = "HOOKLINE_TOKEN"
SHORTEST, LONGEST = 16, 1024
POLL = 0.2  # seconds between two looks for a file that another node makes


class TokenError(Exception):
    """There is no token, or none that can be used."""


def make_token() -> str:
    """Returns a new token of 256 random bits."""
    return secrets.token_hex(32)


def find_token(path: str | None, nodes: int, node: int, patience: float, environment: Mapping[str, str]) -> str:
    """Returns the token of --token-file, else of the environment, else a new one where this is the only launcher."""
    if path is not None:
        return token_of_file(path, creates=node == 0, patience=patience)
    if given := environment.get(VARIABLE, "").strip():
        return _checked(given, VARIABLE)
    if nodes == 1:
        return make_token()
    raise TokenError(
        f"--nnodes {nodes}: the launchers of a job need a token that they share, and there is none. Set {VARIABLE} to "
        "the same random text on every node, or pass --token-file FILE: node 0 makes the file if there is none, the "
        "other nodes need a copy of it."
    )


def token_of_file(path: str, creates: bool, patience: float) -> str:
    """Reads a token that only this user can read. Without the file: makes it, or waits until another node has."""
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    if creates:
        _make(path)
        note = "made; the other nodes need a copy of it, unless they see this file"
    else:
        note = f"there is no such file; waiting {patience:g} s for node 0 to make it"
    print(f"hookline run: --token-file {path}: {note}", file=sys.stderr, flush=True)
    deadline = time.monotonic() + patience
    while True:
        try:
            return _read(path)
        except FileNotFoundError as error:
            if time.monotonic() >= deadline:
                raise TokenError(f"--token-file {path}: there is no such file; copy it from node 0.") from error
            time.sleep(POLL)


def _read(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a FIFO would block
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise TokenError(f"--token-file {path}: expected a file, got something else.")
            if found.st_uid not in (os.geteuid(), 0):
                raise TokenError(f"--token-file {path}: it belongs to another user (uid {found.st_uid}).")
            if found.st_mode & 0o077:
                mode = stat.S_IMODE(found.st_mode)
                raise TokenError(
                    f"--token-file {path}: other users have access to it: expected mode 0600, got {mode:04o}. "
                    f"Run chmod 600 {path}, and make a new token if they may have read it."
                )
            text = file.read(LONGEST + 2).decode("ascii", errors="replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenError(f"--token-file {path}: {error.strerror}.") from error
    return _checked(text.strip(), f"--token-file {path}")


def _make(path: str) -> None:
    """Makes the file in one step, so that no other node reads half of it; leaves a file that is there already alone."""
    try:
        # mkstemp() gives the file mode 0600.
        file, temporary = tempfile.mkstemp(prefix=f"{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
        try:
            with open(file, "w", encoding="ascii") as writer:
                writer.write(f"{make_token()}\n")
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except OSError as error:
        raise TokenError(f"--token-file {path}: it cannot be made: {error.strerror}.") from error


def _checked(token: str, source: str) -> str:
    if not SHORTEST <= len(token) <= LONGEST or not all(" " <= c <= "~" for c in token):
        raise TokenError(
            f"{source}: a token has {SHORTEST} to {LONGEST} printable ASCII characters, chosen at random. "
            "Make one with: openssl rand -hex 32"
        )
    return token
