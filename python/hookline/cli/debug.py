"""`hookline debug DIR`: reads the dumps of all ranks of recorded groups and says what they were waiting for."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .records import Dump, Operation, read_dumps


def when(seconds: float) -> str:
    """A time of day, as people read it."""
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{int(seconds % 1 * 1000):03d}"


def ranks_text(ranks: Sequence[int]) -> str:
    """As in "rank 1" or "ranks 0, 2"."""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, sorted(ranks)))}"


def by_text(calls: dict[int, Operation]) -> dict[str, list[int]]:
    """Which ranks called what."""
    texts: dict[str, list[int]] = {}
    for rank, call in sorted(calls.items()):
        texts.setdefault(call.describe(), []).append(rank)
    return texts


def order_differs(dumps: list[Dump], lane: int) -> list[str]:
    """Where the ranks first called different operations, from the numbers that all remember."""
    first = max((d.first_in_lane(lane) for d in dumps), default=1)
    numbers = {call.in_lane for d in dumps for call in d.operations if call.lane == lane and call.in_lane >= first}
    for number in sorted(numbers):
        calls = {d.rank: call for d in dumps if (call := d.in_lane(lane, number))}
        texts = by_text(calls)
        if len(texts) > 1:
            lines = [f"  the order differs: number {number} of lane {lane} is"]
            return lines + [f"    {text} on {ranks_text(ranks)}" for text, ranks in texts.items()]
    return []


def who_is_behind(dumps: list[Dump], lane: int) -> list[str]:
    """Which ranks have not called what others wait in, or are still in what others have done."""
    last = {d.rank: d.last_in_lane(lane) for d in dumps}
    furthest = max(last.values(), default=0)
    behind = [rank for rank, number in last.items() if number < furthest]
    lines = []
    if behind:
        rank = min(behind, key=lambda r: last[r])
        number = last[rank] + 1
        waiting = {d.rank: call for d in dumps if (call := d.in_lane(lane, number))}
        since = min((call.started for call in waiting.values()), default=None)
        text = next(iter(by_text(waiting)), "an operation that nobody remembers")
        line = f"  {ranks_text(behind)} {'is' if len(behind) == 1 else 'are'} behind: "
        line += f"{ranks_text([rank])} has not called number {number} of lane {lane}, {text}"
        if since is not None:
            have = "has" if len(waiting) == 1 else "have"
            line += f", in which {ranks_text(list(waiting))} {have} been waiting since {when(since)}"
            line += f" ({max(d.time for d in dumps) - since:.1f} s before the last dump)"
        lines.append(line)
    for d in dumps:
        for call in d.operations:
            if call.lane == lane and call.state == "running" and not behind:
                lines.append(
                    f"  rank {d.rank} is in number {call.in_lane} of lane {lane}, {call.describe()},"
                    f" since {when(call.started)} ({d.time - call.started:.1f} s)"
                )
    return lines


def report(dumps: list[Dump]) -> list[str]:
    """What there is to say about one group, a line each."""
    size = dumps[0].size
    missing = sorted(set(range(size)) - {d.rank for d in dumps})
    lines = [f"{dumps[0].group} ({dumps[0].backend}, {size} ranks)"]
    if missing:
        lines.append(f"  no dump of {ranks_text(missing)}: it has died, or hangs outside of the group's operations")
    found: list[str] = []
    for lane in sorted({call.lane for d in dumps for call in d.operations if call.lane >= 0}):
        found += order_differs(dumps, lane) or who_is_behind(dumps, lane)
    for d in dumps:
        pending = [call for call in d.operations if call.lane < 0 and call.state == "running"]
        found += [f"  rank {d.rank} waits in {call.describe()} since {when(call.started)}" for call in pending]
        failed = next((call for call in d.operations if call.state == "failed"), None)
        if failed:
            found.append(f"  rank {d.rank}: {failed.describe()} failed at {when(failed.finished or 0)}: {failed.error}")
    return lines + (found or ["  all ranks have done the same operations; nothing is pending"])


def main(arguments: Sequence[str]) -> int:
    """Prints a report on every group with a dump in the directory; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hookline debug",
        description="Merges the dumps of recorded groups (see HOOKLINE_DEBUG=recorded) and says which rank is behind, "
        "on which operation and since when, or where the ranks' orders differ.",
    )
    parser.add_argument("directory", type=Path, help="where the dumps of all ranks are")
    directory: Path = parser.parse_args(arguments).directory
    try:
        groups = read_dumps(directory)
    except (OSError, ValueError) as error:
        print(f"hookline debug: {error}", file=sys.stderr)
        return 2
    if not groups:
        print(f"hookline debug: there are no dumps (*.rank*.json) in {directory}", file=sys.stderr)
        return 2
    for dumps in groups.values():
        print("\n".join(report(dumps)))
    return 0
