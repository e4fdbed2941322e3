"""The files that recorded groups dump, read and checked."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Operation:
    """One operation that a rank remembers; lane is -1 for sends and receives."""

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
        """What was called, without anything that differs between ranks."""
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
    """What one rank of one group remembers."""

    group: str
    backend: str
    rank: int
    size: int
    time: float
    operations: list[Operation]

    def in_lane(self, lane: int, number: int) -> Operation | None:
        """An operation by its number in its lane."""
        return next((o for o in self.operations if o.lane == lane and o.in_lane == number), None)

    def first_in_lane(self, lane: int) -> int:
        """The number of the first one that is remembered; 1 where none is."""
        return min((o.in_lane for o in self.operations if o.lane == lane), default=1)

    def last_in_lane(self, lane: int) -> int:
        """The number of the last one; 0 where there is none."""
        return max((o.in_lane for o in self.operations if o.lane == lane), default=0)


def operation_of(entry: dict[str, Any]) -> Operation:
    """One entry of the file's list."""
    return Operation(
        lane=int(entry["lane"]),
        in_lane=int(entry["in_lane"]),
        op=str(entry["op"]),
        state=str(entry["state"]),
        started=float(entry["started"]),
        finished=None if entry["finished"] is None else float(entry["finished"]),
        dtype=entry.get("dtype"),
        shape=tuple(int(n) for n in entry.get("shape", ())),
        root=entry.get("root"),
        reduce_op=entry.get("reduce_op"),
        tensors=int(entry["tensors"]),
        error=entry.get("error"),
    )


def read_dump(path: Path) -> Dump:
    """One file. ValueError, naming it, for what is no dump."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != 1:
            raise ValueError(f"version {data['version']} is not known")
        return Dump(
            group=str(data["group"]),
            backend=str(data["backend"]),
            rank=int(data["rank"]),
            size=int(data["size"]),
            time=float(data["time"]),
            operations=[operation_of(entry) for entry in data["operations"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no dump of a recorded group: {error}") from error


def read_dumps(directory: Path) -> dict[str, list[Dump]]:
    """All dumps in a directory, by group, in the order of ranks."""
    if not directory.is_dir():
        raise ValueError(f"{directory} is no directory")
    groups: dict[str, list[Dump]] = {}
    for path in sorted(directory.glob("*.rank*.json")):
        dump = read_dump(path)
        groups.setdefault(dump.group, []).append(dump)
    for dumps in groups.values():
        dumps.sort(key=lambda dump: dump.rank)
    return groups
