"""Hosts that are network namespaces of this machine, joined by a switch, each behind a link of a given rate.

The addresses exist only inside the namespaces. Removing the hosts also removes their links and addresses. Creating and
removing hosts requires root and Debian's iproute2.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_numbers = itertools.count()
INTERFACE = "link0"
PORT = 29511
TOKEN = "the token of the jobs of these tests"
MPIRUN = Path(__file__).resolve().parents[2] / "harness/mpirun.sh"
MPI_SECONDS = 80


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def tc(*arguments: str) -> None:
    done = subprocess.run(["tc", *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"tc {' '.join(arguments)}: {done.stderr.strip()}")


class Hosts:
    """Creates `count` hosts whose addresses begin with `network`.

    Each host sends and receives at `rate` in the notation of tc, such as "1gbit"; None: unlimited.
    """

    def __init__(self, count: int, rate: str | None = None, network: str = "10.89.0") -> None:
        name = f"hl{os.getpid()}x{next(_numbers)}"
        self.count = count
        self.rate = rate
        self.network = network
        self.switch = f"{name}s"
        self.names = [f"{name}h{i}" for i in range(count)]
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Hosts":
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def _make(self) -> None:
        for name in (self.switch, *self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.switch, "link", "add", "bridge0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge0", "up")
        for i, name in enumerate(self.names):
            port = f"port{i}"
            ip("link", "add", INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", self.switch)
            ip("-n", self.switch, "link", "set", port, "master", "bridge0", "up")
            ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", INTERFACE)
            ip("-n", name, "link", "set", INTERFACE, "up")
        if self.rate:
            self.set_rate(self.rate)

    def set_rate(self, rate: str) -> None:
        """Changes the rate of every link in both directions."""
        for i, name in enumerate(self.names):
            for namespace, device in ((name, INTERFACE), (self.switch, f"port{i}")):
                # A bucket of 1 ms and a queue of 20 ms at this rate, with lower bounds for slow links.
                bits = {"k": 1e3, "m": 1e6, "g": 1e9}[rate[-4]] * float(rate[:-4])
                burst = max(16_000, int(bits / 8 / 1000))
                limit = max(400_000, int(bits / 8 * 0.02))
                settings = ("rate", rate, "burst", str(burst), "limit", str(limit))
                tc("-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *settings)
        self.rate = rate

    def _remove(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(30)
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        for name in (*self.names, self.switch):
            with contextlib.suppress(RuntimeError):
                ip("netns", "delete", name)

    def address(self, host: int) -> str:
        return f"{self.network}.{host + 1}"

    def cut(self, host: int) -> None:
        """Silently drops all packets of this host."""
        ip("-n", self.switch, "link", "set", f"port{host}", "nomaster")

    def mend(self, host: int) -> None:
        """Undoes cut()."""
        ip("-n", self.switch, "link", "set", f"port{host}", "master", "bridge0")

    def bytes_sent(self, host: int) -> int:
        """Returns the bytes sent by the interface since its creation."""
        shown: list[dict[str, Any]] = json.loads(ip("-n", self.names[host], "-s", "-j", "link", "show", INTERFACE))
        return int(shown[0]["stats64"]["tx"]["bytes"])

    def start(self, host: int, command: Sequence[str], **variables: str) -> "subprocess.Popen[str]":
        """Starts a process on a host. It is killed when the hosts are removed."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[host], *command],
            stdin=subprocess.PIPE,
            env={**os.environ, "HOOKLINE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def start_ranks(self, command: Sequence[str], each: Sequence[int], **variables: str) -> list[Any]:
        """Starts `each[h]` ranks on host h. The first rank serves the store. Returns the processes in rank order."""
        started = []
        port = variables.pop("MASTER_PORT", str(PORT))
        for host, ranks in enumerate(each):
            for local in range(ranks):
                known = {"RANK": len(started), "WORLD_SIZE": sum(each), "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": ranks}
                known_texts = {name: str(value) for name, value in known.items()}
                where = {"MASTER_ADDR": self.address(0), "MASTER_PORT": port, "HOST": str(host)}
                started.append(self.start(host, command, **known_texts, **where, **variables))
        return started

    def mpirun(self, command: Sequence[str], each: Sequence[int], folder: Path, **variables: str) -> str:
        """Runs a command with Open MPI's mpirun, which reaches the other hosts through a script in the folder.

        The ranks are distributed over the hosts in turn. Returns their output in rank order; raises an error with this
        output if a rank fails.
        """
        places = "\n".join(f"{self.address(i)}) place={name};;" for i, name in enumerate(self.names))
        # MPI treats hosts with the same name as one host.
        run = 'exec ip netns exec $place unshare --uts sh -c "hostname $place; $*"'
        agent = folder / "agent.sh"
        agent.write_text(f"#!/bin/sh\nhost=$1\nshift\ncase $host in\n{places}\nesac\n{run}\n")
        agent.chmod(0o700)
        settings = {
            "plm_rsh_agent": str(agent),
            "btl_tcp_if_include": INTERFACE,
            "oob_tcp_if_include": INTERFACE,
            "mpi_yield_when_idle": "1",  # mpirun does not detect that ranks outnumber cores
        }
        hosts = ",".join(f"{self.address(i)}:{ranks}" for i, ranks in enumerate(each))
        options = ["--allow-run-as-root", "-n", str(sum(each)), "--host", hosts, "--map-by", "node"]
        for name, value in settings.items():
            options += ["--mca", name, value]
        for name in ("PYTHONPATH", "HOOKLINE_TOKEN", *variables):
            options += ["-x", name]
        known = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TMPDIR": str(folder)}
        script = [str(MPIRUN), str(MPI_SECONDS), *options, "--", *command]
        return outputs([self.start(0, script, **known, **variables)])[0]

    def run(self, program: Path, each: Sequence[int], timeout: float = 90, **variables: str) -> list[str]:
        """Runs a Python program as ranks and returns their outputs; AssertionError with the output if a rank fails."""
        return outputs(self.start_ranks([sys.executable, str(program)], each, **variables), timeout)


def outputs(processes: Sequence[Any], timeout: float = 100) -> list[str]:
    """Waits for processes and returns their outputs in order; AssertionError on failures and timeouts."""
    deadline = time.monotonic() + timeout
    texts, failed = [], []
    for rank, process in enumerate(processes):
        try:
            text = process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0]
            end = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0]
            end = f"was not done within {timeout:g} s"
        texts.append(text)
        if process.returncode != 0:
            failed.append(f"rank {rank} {end}:\n{text}")
    assert not failed, "\n".join(failed)
    return texts
