"""The system limits that affect ranks which share memory, and the findings of `hookline doctor` about them."""

import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from .._core import available_bytes
from .rendezvous_dir import tmpfs_dirs
from .report import Finding, State, format_bytes

MIB = 1 << 20
SEGMENT = 1 << 44  # the length of a rank's shared memory file, which is sparse
DESCRIPTORS_PER_PEER = 3  # upper bound: two in a rank, three in the launcher
RESERVED_DESCRIPTORS = 48  # for Python, the store, and files that the program opens


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes; `inf` if there is no limit or it is unknown."""

    kernel: tuple[int, int]
    memory: float  # available on the host and in the control groups
    shared_size: float  # of /dev/shm
    shared_free: float
    rendezvous_dir: str  # where `hookline run` places its file store
    rendezvous_free: float
    file_size: float  # RLIMIT_FSIZE
    address_space: float
    locked: float  # RLIMIT_MEMLOCK
    descriptors: float  # RLIMIT_NOFILE, soft and hard
    descriptors_hard: float
    cores: int  # of the machine
    affinity: int  # that this process may run on
    quota: float  # the CPU quota of its control groups, in cores
    processes: float  # remaining in its control groups


def read_limits(root: str = "/") -> Limits:
    """Reads the limits of this process. `root` replaces / for /proc and /sys."""
    shared = Path("/dev/shm")
    usable = [path for path in tmpfs_dirs() if os.access(path, os.W_OK | os.X_OK)]
    directory = usable[0] if usable else tempfile.gettempdir()
    groups = list(_groups(Path(root)))
    memory = available_bytes(root)
    nofile = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        kernel=_version(os.uname().release),
        memory=inf if memory is None else memory,
        shared_size=_file_system(shared, free=False),
        shared_free=_file_system(shared, free=True),
        rendezvous_dir=directory,
        rendezvous_free=_file_system(Path(directory), free=True),
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


def check_limits(found: Limits) -> Iterator[Finding]:
    """Yields a finding for each limit, with a fix if the limit is too low."""
    yield _kernel(found)
    yield _memory(found)
    yield _shared(found)
    yield _rendezvous(found)
    yield _files(found)
    yield _locked(found)
    yield _descriptors(found)
    yield _cores(found)
    yield _processes(found)


def _kernel(found: Limits) -> Finding:
    text = f"Linux {found.kernel[0]}.{found.kernel[1]}"
    if found.kernel >= (5, 4):
        return Finding(State.OK, text)
    return Finding(State.FAIL, f"{text}: too old to detect that a peer process died", "use Linux 5.4 or newer")


def _memory(found: Limits) -> Finding:
    text = f"memory: {format_bytes(found.memory)} available"
    if found.memory < 32 * MIB:
        return Finding(
            State.FAIL,
            f"{text}; each rank requires 4 MiB and its gradient buckets",
            "stop other programs, or raise the container's memory limit",
        )
    if found.memory < 512 * MIB:
        return Finding(
            State.WARN,
            f"{text}; gradient buckets require as much memory as the gradients",
            "use a larger container or machine",
        )
    return Finding(State.OK, text)


def _shared(found: Limits) -> Finding:
    text = f"/dev/shm: {format_bytes(found.shared_free)} free of {format_bytes(found.shared_size)}"
    if found.shared_free < 64 * MIB:
        return Finding(
            State.WARN,
            f"{text}; Hookline does not use it, but data loaders and Open MPI do",
            "remove stale files from /dev/shm, or start the container with --shm-size=1g",
        )
    return Finding(State.OK, text)


def _rendezvous(found: Limits) -> Finding:
    text = f"store of `hookline run`: {found.rendezvous_dir}, {format_bytes(found.rendezvous_free)} free"
    if found.rendezvous_free < MIB:
        return Finding(
            State.FAIL, text, "free space there, or set XDG_RUNTIME_DIR to a directory with at least 1 MiB free"
        )
    return Finding(State.OK, text)


def _files(found: Limits) -> Finding:
    least = min(found.file_size, found.address_space)
    text = f"max file size and address space: {format_bytes(least)}"
    if found.file_size < SEGMENT:
        return Finding(
            State.FAIL,
            f"{text}; shared memory requires a sparse file of {format_bytes(SEGMENT)}",
            "ulimit -f unlimited",
        )
    if found.address_space < inf:
        return Finding(State.WARN, f"{text}; each rank maps the buffers of its peers", "ulimit -v unlimited")
    return Finding(State.OK, text)


def _locked(found: Limits) -> Finding:
    text = f"locked memory: {format_bytes(found.locked)}"
    if found.locked < 64 << 10:
        return Finding(
            State.WARN, f"{text}; shm does not lock memory, but MPI over RDMA networks does", "ulimit -l unlimited"
        )
    return Finding(State.OK, text)


def _descriptors(found: Limits) -> Finding:
    ranks = int(min(found.descriptors - RESERVED_DESCRIPTORS, 1e6)) // DESCRIPTORS_PER_PEER
    text = f"open files: {found.descriptors:.0f}, sufficient for {max(ranks, 0)} ranks on this host"
    fix = f"ulimit -n {min(found.descriptors_hard, 65536):.0f}"
    if found.descriptors_hard < 256:
        fix = f"ask the administrator to raise the hard limit of {found.descriptors_hard:.0f}, then ulimit -n 4096"
    if ranks < 2:
        return Finding(State.FAIL, text, fix)
    if ranks < 2 * found.affinity:
        return Finding(State.WARN, text, fix)
    return Finding(State.OK, text)


def _cores(found: Limits) -> Finding:
    usable = min(found.affinity, found.quota)
    text = f"cores: {found.cores}, {usable:g} usable by this process"
    if found.quota < found.affinity:
        return Finding(
            State.WARN,
            f"{text}; the CPU quota of its control group throttles ranks, also in the middle of an operation",
            f"start at most {max(1, int(found.quota))} ranks here, or raise the container's --cpus",
        )
    if usable < 2:
        return Finding(
            State.WARN,
            f"{text}; the ranks will share one core",
            "change the affinity with taskset, or use more cores",
        )
    return Finding(State.OK, text)


def _processes(found: Limits) -> Finding:
    text = "max processes: " + ("unlimited" if found.processes == inf else f"{found.processes:.0f} more")
    if found.processes < 16:
        return Finding(State.FAIL, f"{text}; each rank has two or more threads", "raise the container's --pids-limit")
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
        status = os.statvfs(path)
    except OSError:
        return 0
    return status.f_frsize * (status.f_bavail if free else status.f_blocks)


def _groups(root: Path) -> Iterator[Path]:
    """Yields the control groups (version 2) of this process, from its own up to the root."""
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
