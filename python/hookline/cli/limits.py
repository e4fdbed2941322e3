"""The limits of this machine and process, as far as they matter to ranks that share memory, and what to say of them."""

import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from .._core import available_bytes
from .findings import Finding, State, bytes_text
from .private_store import places_in_memory

MIB = 1 << 20
SEGMENT = 1 << 44  # the length of a rank's file of shared memory, most of it a hole
DESCRIPTORS_A_PEER = 3  # at the most: two in a rank, three in the launcher
DESCRIPTORS_BESIDE = 48  # of Python, the store, and what a program opens itself


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes; `inf` where there is no limit, or none that can be seen."""

    kernel: tuple[int, int]
    memory: float  # that may be taken without pushing somebody out, on the host and in the control groups
    shared_size: float  # of /dev/shm
    shared_free: float
    meeting_place: str  # the directory in which `hookline run` has its store
    meeting_free: float
    file_size: float  # RLIMIT_FSIZE
    address_space: float
    locked: float  # RLIMIT_MEMLOCK
    descriptors: float  # RLIMIT_NOFILE, as it is and as it may be made
    descriptors_hard: float
    cores: int  # of the machine
    affinity: int  # that this process may run on
    quota: float  # cores that its control groups give it
    processes: float  # that its control groups still allow


def read_limits(root: str = "/") -> Limits:
    """Of this process; /proc and /sys are looked for below `root`."""
    shared = Path("/dev/shm")
    usable = [place for place in places_in_memory() if os.access(place, os.W_OK | os.X_OK)]
    place = usable[0] if usable else tempfile.gettempdir()
    groups = list(_groups(Path(root)))
    memory = available_bytes(root)
    nofile = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        kernel=_version(os.uname().release),
        memory=inf if memory is None else memory,
        shared_size=_file_system(shared, free=False),
        shared_free=_file_system(shared, free=True),
        meeting_place=place,
        meeting_free=_file_system(Path(place), free=True),
        file_size=_limit(resource.RLIMIT_FSIZE),
        address_space=_limit(resource.RLIMIT_AS),
        locked=_limit(resource.RLIMIT_MEMLOCK),
        descriptors=_number(nofile[0]),
        descriptors_hard=_number(nofile[1]),
        cores=os.cpu_count() or 1,
        affinity=len(os.sched_getaffinity(0)),
        quota=min([inf, *map(_quota, groups)]),
        processes=min([inf, *map(_processes_left, groups)]),
    )


def judge(found: Limits) -> Iterator[Finding]:
    """A finding for each limit, with what to do where it is too low."""
    yield _kernel(found)
    yield _memory(found)
    yield _shared(found)
    yield _meeting(found)
    yield _files(found)
    yield _locked(found)
    yield _descriptors(found)
    yield _cores(found)
    yield _processes(found)


def _kernel(found: Limits) -> Finding:
    text = f"Linux {found.kernel[0]}.{found.kernel[1]}"
    if found.kernel >= (5, 4):
        return Finding(State.OK, text)
    return Finding(State.WRONG, f"{text}: the death of a rank cannot be noticed", "use Linux 5.4 or newer")


def _memory(found: Limits) -> Finding:
    text = f"memory: {bytes_text(found.memory)} may be taken"
    if found.memory < 32 * MIB:
        return Finding(
            State.WRONG, f"{text}; a rank wants 4 MiB and its buckets", "end something, or raise the container's limit"
        )
    if found.memory < 512 * MIB:
        return Finding(State.LOOK, f"{text}; buckets take as much as the gradients", "a larger container or machine")
    return Finding(State.OK, text)


def _shared(found: Limits) -> Finding:
    text = f"/dev/shm: {bytes_text(found.shared_free)} free of {bytes_text(found.shared_size)}"
    if found.shared_free < 64 * MIB:
        return Finding(
            State.LOOK,
            f"{text}; hookline's own memory is not there, but that of data loaders and of Open MPI is",
            "remove what was left in /dev/shm, or start the container with --shm-size=1g",
        )
    return Finding(State.OK, text)


def _meeting(found: Limits) -> Finding:
    text = f"store of `hookline run`: {found.meeting_place}, {bytes_text(found.meeting_free)} free"
    if found.meeting_free < MIB:
        return Finding(State.WRONG, text, "make room there, or set XDG_RUNTIME_DIR to a directory with some")
    return Finding(State.OK, text)


def _files(found: Limits) -> Finding:
    least = min(found.file_size, found.address_space)
    text = f"size of files and of memory maps: {bytes_text(least)}"
    if found.file_size < SEGMENT:
        return Finding(
            State.WRONG,
            f"{text}; shared memory is a file of {bytes_text(SEGMENT)}, most of it a hole",
            "ulimit -f unlimited",
        )
    if found.address_space < inf:
        return Finding(State.LOOK, f"{text}; peers map each other's buffers", "ulimit -v unlimited")
    return Finding(State.OK, text)


def _locked(found: Limits) -> Finding:
    text = f"locked memory: {bytes_text(found.locked)}"
    if found.locked < 64 << 10:
        return Finding(State.LOOK, f"{text}; shm locks none, but an MPI over fast networks does", "ulimit -l unlimited")
    return Finding(State.OK, text)


def _descriptors(found: Limits) -> Finding:
    ranks = int(min(found.descriptors - DESCRIPTORS_BESIDE, 1e6)) // DESCRIPTORS_A_PEER
    text = f"open files: {found.descriptors:.0f}, enough for {max(ranks, 0)} ranks on this host"
    fix = f"ulimit -n {min(found.descriptors_hard, 65536):.0f}"
    if found.descriptors_hard < 256:
        fix = f"have the administrator raise the hard limit, which is {found.descriptors_hard:.0f}; then ulimit -n 4096"
    if ranks < 2:
        return Finding(State.WRONG, text, fix)
    if ranks < 2 * found.affinity:
        return Finding(State.LOOK, text, fix)
    return Finding(State.OK, text)


def _cores(found: Limits) -> Finding:
    usable = min(found.affinity, found.quota)
    text = f"cores: {found.cores}, of which this process may use {usable:g}"
    if found.quota < found.affinity:
        return Finding(
            State.LOOK,
            f"{text}; its control group stops it for the rest of the time, ranks in the middle of an operation too",
            f"start at most {max(1, int(found.quota))} ranks here, or raise the container's --cpus",
        )
    if usable < 2:
        return Finding(State.LOOK, f"{text}; ranks will wait for each other to be let in", "taskset, or more cores")
    return Finding(State.OK, text)


def _processes(found: Limits) -> Finding:
    text = "processes: as many as you like" if found.processes == inf else f"processes: {found.processes:.0f} more"
    if found.processes < 16:
        return Finding(State.WRONG, f"{text}; a rank has two threads or more", "raise the container's --pids-limit")
    return Finding(State.OK, text)


def _number(value: int) -> float:
    return inf if value == resource.RLIM_INFINITY else value


def _limit(which: int) -> float:
    return _number(resource.getrlimit(which)[0])


def _version(release: str) -> tuple[int, int]:
    major, minor = (int("".join(c for c in part if c.isdigit()) or 0) for part in (release + ".0").split(".")[:2])
    return major, minor


def _file_system(path: Path, free: bool) -> float:
    try:
        told = os.statvfs(path)
    except OSError:
        return 0
    return told.f_frsize * (told.f_bavail if free else told.f_blocks)


def _groups(root: Path) -> Iterator[Path]:
    """The control groups (version 2) that this process is in, from its own up to the root."""
    top = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            group = Path(line[4:])
            yield from (top / part for part in (group, *group.parents))


def _processes_left(group: Path) -> float:
    try:
        return int(_text(group / "pids.max")) - int(_text(group / "pids.current"))
    except ValueError:  # no such file, or "max"
        return inf


def _quota(group: Path) -> float:
    try:
        quota, period = map(int, _text(group / "cpu.max").split())
    except ValueError:
        return inf
    return quota / period


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
