"""MPI between hosts, which are network namespaces: as backend, as hierarchical transport, and as the default."""

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
        # Each host sends 1.2 MB in the allreduce, and the control traffic of mpirun and of the group.
        sent = [hosts.bytes_sent(host) for host in range(2)]
    found = sorted(line for line in printed.splitlines() if line.startswith("rank"))
    assert found == [f"rank {rank} of 4 on hierarchical over ['mpi']" for rank in range(4)], printed
    assert all(1_200_000 < count < 1_500_000 for count in sent), sent


# The program initializes MPI itself, as applications do; this option connects its ranks one after another.
CONTRACT = {"OMPI_MCA_mpi_preconnect_mpi": "1", "HOOKLINE_MATRIX": "0.1"}


# Only tests of hierarchical operations: all others would create seventy groups, which takes minutes on a loaded
# machine.
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
