"""Our TCP store in a process of its own, with the methods of torch.distributed's stores."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

PROGRAM = Path(__file__).parents[3] / "build" / "dev" / "tests" / "tcp_store_shell"
ERRORS = {"Timeout": TimeoutError, "PeerLost": ConnectionError, "InvalidArgument": ValueError}


def to_hex(value: str | bytes | int | bool) -> str:
    if isinstance(value, (bool, int)):
        value = str(int(value))
    return "x" + (value.encode() if isinstance(value, str) else value).hex()


def from_hex(word: str) -> bytes:
    return bytes.fromhex(word[1:])


class OurStore:
    def __init__(self, role: str, port: int = 0, prefix: str | None = None) -> None:
        command = [str(PROGRAM), role, "127.0.0.1", str(port), *([prefix] if prefix else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.timeout = timedelta(seconds=20)
        self.port = int(self.result() or 0)

    def close(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(20)
        self.process.stdout.close()  # type: ignore[union-attr]

    def start(self, operation: str, *arguments: str | bytes | int | bool, timeout: timedelta | None = None) -> None:
        milliseconds = (timeout or self.timeout) // timedelta(milliseconds=1)
        words = [operation, str(milliseconds), *map(to_hex, arguments)]
        self.process.stdin.write(" ".join(words) + "\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]

    def result(self) -> str:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        assert line, "the process has ended"
        line = line.rstrip("\n")
        if line.startswith("!"):
            name, _, text = line[1:].partition(" ")
            raise ERRORS[name](text)
        return line

    def _call(self, operation: str, *arguments: str | bytes | int | bool, timeout: timedelta | None = None) -> str:
        self.start(operation, *arguments, timeout=timeout)
        return self.result()

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        self._call("set", key, value)

    def get(self, key: str) -> bytes:
        return from_hex(self._call("get", key))

    def add(self, key: str, amount: int) -> int:
        return int(self._call("add", key, amount))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._call("wait", *keys, timeout=timeout)

    def check(self, keys: list[str]) -> bool:
        return self._call("check", *keys) == "1"

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return from_hex(self._call("compare_set", key, expected, desired))

    def delete_key(self, key: str) -> bool:
        return self._call("delete_key", key) == "1"

    def num_keys(self) -> int:
        return int(self._call("num_keys"))

    def list_keys(self) -> list[str]:
        return [from_hex(word).decode() for word in self._call("list_keys").split()]

    def append(self, key: str, value: str) -> None:
        self._call("append", key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [from_hex(word) for word in self._call("multi_get", *keys).split()]

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        self._call("multi_set", *keys, *values)

    def queue_push(self, key: str, value: str) -> None:
        self._call("queue_push", key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return from_hex(self._call("queue_pop", key, block))

    def queue_len(self, key: str) -> int:
        return int(self._call("queue_len", key))

    def barrier(self, key: str, world_size: int, timeout: timedelta) -> None:
        self._call("barrier", key, world_size, timeout=timeout)
