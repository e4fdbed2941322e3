"""Launchers of several nodes on one machine: their address and their exit."""

import random
import subprocess


def own_address() -> str:
    """Returns a random loopback address: other tests use other addresses, so its ports are free."""
    return f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"


def ends(process: "subprocess.Popen[bytes]", timeout: float = 30) -> tuple[int, str, str]:
    """Waits for a launcher, and returns its exit code, the rest of its stdout, and its stderr."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out.decode(), err.decode()
