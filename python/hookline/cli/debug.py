"""`hookline debug DIR`: merges the flight recorder dumps of all ranks and reports what each rank was waiting for."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .flight_dumps import Dump, Operation, read_dumps


def format_time(seconds: float) -> str:
    """Returns the local time of day with milliseconds."""
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{int(seconds % 1 * 1000):03d}"


def ranks_text(ranks: Sequence[int]) -> str:
    """Returns a list of ranks in words, as in "rank 1" or "ranks 0, 2"."""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, sorted(ranks)))}"


def ranks_by_call(calls: dict[int, Operation]) -> dict[str, list[int]]:
    """Groups the ranks by the description of their call."""
    texts: dict[str, list[int]] = {}
    for rank, call in sorted(calls.items()):
        texts.setdefault(call.describe(), []).append(rank)
    return texts


def find_order_mismatch(dumps: list[Dump], lane: int) -> list[str]:
    """Reports the first position in a lane at which the ranks called different operations, if all dumps cover it."""
    first = max((d.first_in_lane(lane) for d in dumps), default=1)
    numbers = {call.in_lane for d in dumps for call in d.operations if call.lane == lane and call.in_lane >= first}
    for number in sorted(numbers):
        calls = {d.rank: call for d in dumps if (call := d.in_lane(lane, number))}
        texts = ranks_by_call(calls)
        if len(texts) > 1:
            lines = [f"  mismatch: operation {number} in lane {lane} differs between ranks:"]
            return lines + [f"    {text} on {ranks_text(ranks)}" for text, ranks in texts.items()]
    return []


def find_stragglers(dumps: list[Dump], lane: int) -> list[str]:
    """Reports the ranks that have not called an operation that others wait in, or that are still inside one."""
    last = {d.rank: d.last_in_lane(lane) for d in dumps}
    furthest = max(last.values(), default=0)
    behind = [rank for rank, number in last.items() if number < furthest]
    lines = []
    if behind:
        rank = min(behind, key=lambda r: last[r])
        number = last[rank] + 1
        waiting = {d.rank: call for d in dumps if (call := d.in_lane(lane, number))}
        since = min((call.started for call in waiting.values()), default=None)
        text = next(iter(ranks_by_call(waiting)), "an operation that no dump contains")
        line = f"  {ranks_text(behind)} {'is' if len(behind) == 1 else 'are'} behind: "
        line += f"{ranks_text([rank])} has not called operation {number} in lane {lane}, {text}"
        if since is not None:
            have = "has" if len(waiting) == 1 else "have"
            line += f"; {ranks_text(list(waiting))} {have} been waiting in it since {format_time(since)}"
            line += f" ({max(d.time for d in dumps) - since:.1f} s before the last dump)"
        lines.append(line)
    for d in dumps:
        for call in d.operations:
            if call.lane == lane and call.state == "running" and not behind:
                lines.append(
                    f"  rank {d.rank} is in operation {call.in_lane} in lane {lane}, {call.describe()},"
                    f" since {format_time(call.started)} ({d.time - call.started:.1f} s)"
                )
    return lines


def report(dumps: list[Dump]) -> list[str]:
    """Returns the report on one group as lines."""
    size = dumps[0].size
    missing = sorted(set(range(size)) - {d.rank for d in dumps})
    lines = [f"{dumps[0].group} ({dumps[0].backend}, {size} ranks)"]
    if missing:
        lines.append(
            f"  {ranks_text(missing)}: no dump found; the process has died, or hangs outside of the group's operations"
        )
    found: list[str] = []
    for lane in sorted({call.lane for d in dumps for call in d.operations if call.lane >= 0}):
        found += find_order_mismatch(dumps, lane) or find_stragglers(dumps, lane)
    for d in dumps:
        pending = [call for call in d.operations if call.lane < 0 and call.state == "running"]
        found += [
            f"  rank {d.rank} has been waiting in {call.describe()} since {format_time(call.started)}"
            for call in pending
        ]
        failed = next((call for call in d.operations if call.state == "failed"), None)
        if failed:
            found.append(
                f"  rank {d.rank}: {failed.describe()} failed at {format_time(failed.finished or 0)}: {failed.error}"
            )
    return lines + (found or ["  all ranks completed the same operations; none are pending"])


def main(arguments: Sequence[str]) -> int:
    """Prints a report on every group with a dump in the directory and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hookline debug",
        description="Merges flight recorder dumps (see HOOKLINE_DEBUG=flight_recorder) and reports which rank is "
        "behind, in which operation and since when, or where the ranks called different operations.",
    )
    parser.add_argument("directory", type=Path, help="the directory with the dumps of all ranks")
    directory: Path = parser.parse_args(arguments).directory
    try:
        groups = read_dumps(directory)
    except (OSError, ValueError) as error:
        print(f"hookline debug: {error}", file=sys.stderr)
        return 2
    if not groups:
        print(f"hookline debug: no dumps (*.rank*.json) found in {directory}", file=sys.stderr)
        return 2
    for dumps in groups.values():
        print("\n".join(report(dumps)))
    return 0
