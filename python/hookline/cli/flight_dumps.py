"""Reads and validates flight recorder dumps."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Operation:
    """A recorded operation; lane is -1 for sends and receives."""

    lane: int
    in_lane: int
    op: str
    state: str
    started: float
    finished: float | None
    dtype: str | None
    shape: tuple[int, ...]
    root: int | None
    reduce_op: str | None
    tensors: int
    error: str | None

    def describe(self) -> str:
        """Returns a description of the call without rank-specific data."""
        text = self.op
        if self.reduce_op not in (None, "sum") and "reduce" in self.op:
            text += f" ({self.reduce_op})"
        if self.dtype is not None:
            text += f" of {self.dtype}[{', '.join(map(str, self.shape))}]"
        if self.tensors > 1:
            text += f" and {self.tensors - 1} more"
        if self.root is not None:
            text += f", {'peer' if self.lane < 0 else 'root'} {self.root}"
        return text


@dataclass(frozen=True)
class Dump:
    """The flight recorder of one rank of one group."""

    group: str
    backend: str
    rank: int
    size: int
    time: float
    operations: list[Operation]

    def in_lane(self, lane: int, number: int) -> Operation | None:
        """Returns an operation by its sequence number in its lane."""
        return next((o for o in self.operations if o.lane == lane and o.in_lane == number), None)

    def first_in_lane(self, lane: int) -> int:
        """Returns the sequence number of the oldest record in a lane; 1 if there is none."""
        return min((o.in_lane for o in self.operations if o.lane == lane), default=1)

    def last_in_lane(self, lane: int) -> int:
        """Returns the sequence number of the newest record in a lane; 0 if there is none."""
        return max((o.in_lane for o in self.operations if o.lane == lane), default=0)


MAX_RANKS = 1 << 20
MAX_NUMBER = 2**63 - 1
MAX_SECONDS = 253402300799.0  # the end of the year 9999, the largest year that time.localtime() supports everywhere


def _integer(entry: dict[str, Any], name: str, low: int, high: int) -> int:
    value = entry[name]
    if type(value) is not int or not low <= value <= high:  # bool is an int
        raise ValueError(f"'{name}': expected an integer from {low} to {high}")
    return value


def _seconds(entry: dict[str, Any], name: str) -> float:
    value = entry[name]
    if type(value) not in (int, float) or not 0 <= value <= MAX_SECONDS:  # NaN is in no range
        raise ValueError(f"'{name}': expected seconds since 1970-01-01")
    return float(value)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry[name]
    if not isinstance(value, str):
        raise ValueError(f"'{name}': expected a string")
    return value


def _shape(entry: dict[str, Any]) -> tuple[int, ...]:
    value = entry.get("shape", [])
    if not isinstance(value, list) or any(type(n) is not int or not 0 <= n <= MAX_NUMBER for n in value):
        raise ValueError("'shape': expected a list of dimensions")
    return tuple(value)


def parse_operation(entry: dict[str, Any]) -> Operation:
    """Parses one entry; KeyError, TypeError or ValueError if a field is missing or invalid."""
    return Operation(
        lane=_integer(entry, "lane", -1, 2**31 - 1),
        in_lane=_integer(entry, "in_lane", 1, MAX_NUMBER),
        op=_text(entry, "op"),
        state=_text(entry, "state"),
        started=_seconds(entry, "started"),
        finished=None if entry["finished"] is None else _seconds(entry, "finished"),
        dtype=None if entry.get("dtype") is None else _text(entry, "dtype"),
        shape=_shape(entry),
        root=None if entry.get("root") is None else _integer(entry, "root", -1, MAX_RANKS),
        reduce_op=None if entry.get("reduce_op") is None else _text(entry, "reduce_op"),
        tensors=_integer(entry, "tensors", 0, MAX_NUMBER),
        error=None if entry.get("error") is None else _text(entry, "error"),
    )


def read_dump(path: Path) -> Dump:
    """Reads one file; ValueError, with the path, if it is not a valid dump."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != 1:
            raise ValueError(
                f"unsupported version: expected 1, got {data['version']}. Use the Hookline version that wrote it."
            )
        size = _integer(data, "size", 1, MAX_RANKS)
        if not isinstance(data["operations"], list):
            raise ValueError("'operations': expected a list")
        return Dump(
            group=_text(data, "group"),
            backend=_text(data, "backend"),
            rank=_integer(data, "rank", 0, size - 1),
            size=size,
            time=_seconds(data, "time"),
            operations=[parse_operation(entry) for entry in data["operations"]],
        )
    except KeyError as error:
        raise ValueError(f"{path} is not a flight recorder dump: {error} is missing") from error
    except RecursionError as error:
        raise ValueError(f"{path} is not a flight recorder dump: nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a flight recorder dump: {error}") from error


def read_dumps(directory: Path) -> dict[str, list[Dump]]:
    """Reads all dumps in a directory. Returns them by group, in rank order."""
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    groups: dict[str, list[Dump]] = {}
    for path in sorted(directory.glob("*.rank*.json")):
        dump = read_dump(path)
        groups.setdefault(dump.group, []).append(dump)
    for dumps in groups.values():
        dumps.sort(key=lambda dump: dump.rank)
    return groups
