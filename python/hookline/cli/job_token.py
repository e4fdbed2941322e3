"""The token of a job: the shared secret of its launchers and ranks, from a file or the environment, or generated."""

import contextlib
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Mapping

VARIABLE = "HOOKLINE_TOKEN"
MIN_LENGTH, MAX_LENGTH = 16, 1024
POLL_INTERVAL = 0.2  # seconds, while waiting for node 0 to create the token file


class TokenError(Exception):
    """The token is missing or invalid."""


def make_token() -> str:
    """Generates a token of 256 random bits."""
    return secrets.token_hex(32)


def find_token(path: str | None, nodes: int, node: int, timeout: float, environment: Mapping[str, str]) -> str:
    """Returns the token from --token-file, else from the environment, else a new one for a job on a single node."""
    if path is not None:
        return token_from_file(path, creates=node == 0, timeout=timeout)
    if token := environment.get(VARIABLE, "").strip():
        return _validated(token, VARIABLE)
    if nodes == 1:
        return make_token()
    raise TokenError(
        f"--nnodes {nodes}: no token: the launchers of a multi-node job must share one. Set {VARIABLE} to the same "
        "random text on every node, or pass --token-file FILE: node 0 creates the file if it is missing, the other "
        "nodes need a copy of it."
    )


def token_from_file(path: str, creates: bool, timeout: float) -> str:
    """Reads a token from a private file. If the file is missing, creates it, or waits for node 0 to create it."""
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    if creates:
        _create(path)
        note = "created; copy it to the other nodes unless they share this file system"
    else:
        note = f"no such file; waiting {timeout:g} s for node 0 to create it"
    print(f"hookline run: --token-file {path}: {note}", file=sys.stderr, flush=True)
    deadline = time.monotonic() + timeout
    while True:
        try:
            return _read(path)
        except FileNotFoundError as error:
            if time.monotonic() >= deadline:
                raise TokenError(f"--token-file {path}: no such file. Copy it from node 0.") from error
            time.sleep(POLL_INTERVAL)


def _read(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a FIFO would block
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise TokenError(f"--token-file {path}: not a regular file.")
            if found.st_uid not in (os.geteuid(), 0):
                raise TokenError(
                    f"--token-file {path}: owned by another user: expected uid {os.geteuid()}, got {found.st_uid}."
                )
            if found.st_mode & 0o077:
                mode = stat.S_IMODE(found.st_mode)
                raise TokenError(
                    f"--token-file {path}: accessible to other users: expected mode 0600, got {mode:04o}. "
                    f"Run chmod 600 {path}, and create a new token if others may have read it."
                )
            text = file.read(MAX_LENGTH + 2).decode("ascii", errors="replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenError(f"--token-file {path}: {error.strerror}.") from error
    return _validated(text.strip(), f"--token-file {path}")


def _create(path: str) -> None:
    """Creates the file atomically, so that no other node reads a part of it. Keeps an existing file."""
    try:
        # mkstemp() creates the file with mode 0600.
        file, temporary = tempfile.mkstemp(prefix=f"{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
        try:
            with open(file, "w", encoding="ascii") as writer:
                writer.write(f"{make_token()}\n")
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except OSError as error:
        raise TokenError(f"--token-file {path}: cannot create the file: {error.strerror}.") from error


def _validated(token: str, source: str) -> str:
    if not MIN_LENGTH <= len(token) <= MAX_LENGTH or not all(" " <= c <= "~" for c in token):
        raise TokenError(
            f"{source}: invalid token: expected {MIN_LENGTH} to {MAX_LENGTH} printable ASCII characters, chosen at "
            "random. Generate one with: openssl rand -hex 32"
        )
    return token
