"""The rows of the benchmark: operations, sizes and ranks, and the systems that run each."""

from __future__ import annotations

from typing import NamedTuple

KIB, MIB = 1 << 10, 1 << 20
OPERATIONS = [
    "allreduce",
    "reduce",
    "broadcast",
    "allgather",
    "gather",
    "scatter",
    "reduce_scatter",
    "alltoall",
    "pingpong",
    "barrier",
]
SIZES = [8, KIB, 8 * KIB, 64 * KIB, MIB, 8 * MIB, 25 * MIB, 64 * MIB, 256 * MIB]
RANKS = [2, 4, 8]


class Row(NamedTuple):
    """One operation, with the size of the largest buffer that a rank passes, and the number of ranks."""

    op: str
    size: int
    ranks: int


class Variant(NamedTuple):
    """A system and a mode in which a row is measured. The times of a variant form a series."""

    system: str
    memory: str
    fresh: bool  # each rank rewrites its buffer before each operation
    op: str | None = None  # None: the operation of the row

    @property
    def name(self) -> str:
        """The name of the series in tables and JSON."""
        system = {"scale": "bound"}.get(self.op or "", self.system)
        memory = f" {self.memory}" if self.system in ("hookline", "python") and not self.op else ""
        return f"{system}{memory} {'fresh' if self.fresh else 'warm'}"


def full_rows(ranks: list[int], operations: list[str], sizes: list[int]) -> list[Row]:
    """Returns every operation with every size; barrier, which has no tensor, once."""
    return [Row(op, size, n) for n in ranks for op in operations for size in (sizes if op != "barrier" else [0])]


def quick_rows() -> list[Row]:
    """Returns the rows with performance targets and a few others."""
    allreduce = [Row("allreduce", size, n) for n in (2, 4) for size in (KIB, 64 * KIB, MIB, 25 * MIB)]
    large = [Row("allreduce", 64 * MIB, 2)]
    others = [Row(op, 25 * MIB, 2) for op in ("reduce_scatter", "allgather", "broadcast")]
    return sorted([*allreduce, *large, *others], key=lambda row: row.ranks)


def variants(row: Row) -> list[Variant]:
    """Returns the variants of a row, in the order of measurement."""
    if row.op == "barrier":  # has no buffers
        return [Variant(system, "other", False) for system in ("hookline", "openmpi", "gloo")]
    result = []
    for fresh in (False, True):
        result += [Variant("hookline", memory, fresh) for memory in ("shared", "other")]
        result += [Variant("openmpi", "other", fresh), Variant("gloo", "other", fresh)]
        result.append(Variant("hookline", "other", fresh, "scale"))
    if row.op == "allreduce" and row.ranks == 2 and row.size <= 64 * KIB:
        result += [Variant("python", kind, False) for kind in ("numpy", "torch")]
    return result


def size_text(size: int) -> str:
    """Formats a size, such as "25 MiB"."""
    if not size:
        return "-"
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_size(text: str) -> int:
    """Parses a size such as "64KiB" or "8"."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB"), (1, "B")):
        if text.endswith(name):
            return int(text.removesuffix(name)) * unit
    return int(text)
