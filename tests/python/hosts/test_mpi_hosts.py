"""MPI between hosts, which are network namespaces: by name, hierarchical, and as what a program gets that names nothing."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from network_hosts import Hosts

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))
PROGRAMS = Path(__file__).parent / "programs"


def test_a_group_that_names_no_backend(tmp_path: Path) -> None:
    with Hosts(2, "10gbit") as hosts:
        command = [sys.executable, str(PROGRAMS / "default_group.py")]
        printed = hosts.mpirun(command, [2, 2], tmp_path)
        # What a rank of each host sends: half of 1.2 MB, and the bytes of two meetings.
        sent = [hosts.bytes_sent(host) for host in range(2)]
    found = sorted(line for line in printed.splitlines() if line.startswith("rank"))
    assert found == [f"rank {rank} of 4 on hierarchical over ['mpi']" for rank in range(4)], printed
    assert all(1_200_000 < count < 1_500_000 for count in sent), sent


# The program initialises MPI itself, as applications do: so it is told to connect its ranks one after the other.
CONTRACT = {"OMPI_MCA_mpi_preconnect_mpi": "1", "HOOKLINE_MATRIX": "0.1"}


# What goes by levels in several ways. The rest makes seventy groups, which take minutes where others compute too.
IN_LAYERS = (
    "GroupContract.Allreduce",
    "GroupBehaviour.LanesMatchInAnyOrder",
    "GroupBehaviour.SubgroupsAndSplits",
    "GroupFailures.MismatchFails*",
)


def contract(tmp_path: Path, names: str, **variables: str) -> None:
    command = [str(BUILD / "tests/mpi_test"), "--gtest_brief=1", f"--gtest_filter={names}"]
    with Hosts(2, "10gbit") as hosts:
        hosts.mpirun(command, [4, 3], tmp_path, **CONTRACT, **variables)


def test_the_contract_of_process_groups(tmp_path: Path) -> None:
    contract(tmp_path, "Fixtures/*/mpi")


def test_the_contract_of_process_groups_in_layers(tmp_path: Path) -> None:
    names = ":".join(f"Fixtures/{name}/hierarchical" for name in IN_LAYERS)
    contract(tmp_path, names, HOOKLINE_TEST_STORE=str(tmp_path))
