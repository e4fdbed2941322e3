"""MPI between hosts, which are network namespaces: by name, and as what a program gets that names nothing."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from network_hosts import Hosts, outputs

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))
PROGRAMS = Path(__file__).parent / "programs"


def test_a_group_that_names_no_backend(tmp_path: Path) -> None:
    with Hosts(2, "10gbit") as hosts:
        command = [sys.executable, str(PROGRAMS / "mpi_default.py")]
        (printed,) = outputs([hosts.mpirun(command, [2, 2], tmp_path)])
        # What a rank of each host sends: half of 1.2 MB, and the bytes of two meetings.
        sent = [hosts.sent_bytes(host) for host in range(2)]
    found = sorted(line for line in printed.splitlines() if line.startswith("rank"))
    assert found == [f"rank {rank} of 4 on layered over ['mpi']" for rank in range(4)], printed
    assert all(1_200_000 < count < 1_500_000 for count in sent), sent


def test_the_contract_of_process_groups(tmp_path: Path) -> None:
    with Hosts(2, "10gbit") as hosts:
        command = [str(BUILD / "tests/mpi_test"), "--gtest_brief=1", "--gtest_filter=Worlds/*"]
        outputs([hosts.mpirun(command, [4, 3], tmp_path, HOOKLINE_MATRIX="0.1")])
