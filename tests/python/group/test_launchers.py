"""The same programs, in Python and C++, form a group under every launcher."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))

PROGRAM = """\
import numpy as np, hookline as hl
group = hl.init_process_group(timeout=60)
x = np.full(1000, group.rank() + 1, np.float32)
group.allreduce([x]).wait()
print(f"rank {group.rank()} of {group.size()}: {x[999]:g}\\n", end="")  # one write: torchrun has no buffer for lines
"""

HOOKLINE = [sys.executable, "-m", "hookline", "run", "-n", "2"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
TORCHRUN += ["--master-addr=127.0.0.1", "--master-port=0", "--rdzv-endpoint=127.0.0.1:0"]
MPIRUN = ["mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe"]
EXPECTED = ["rank 0 of 2: 3", "rank 1 of 2: 3"]

# The variables that launchers which are not installed here set for rank r of 2.
VARIABLES = {
    "pmi": lambda r: {"PMI_RANK": f"{r}", "PMI_SIZE": "2", "MPI_LOCALRANKID": f"{r}", "MPI_LOCALNRANKS": "2"},
    "pmix": lambda r: {"PMIX_RANK": f"{r}", "PMIX_SIZE": "2", "PMIX_NAMESPACE": "job-7"},
    "slurm": lambda r: {"SLURM_PROCID": f"{r}", "SLURM_NTASKS": "2", "SLURM_LOCALID": f"{r}", "SLURM_JOB_ID": "7"},
}


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, list[str]]:
    (tmp_path / "program.py").write_text(PROGRAM)
    return {"python": [str(tmp_path / "program.py")], "cpp": [str(BUILD / "examples/example_process_group")]}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    runtime = tmp_path / "tmp"
    runtime.mkdir()
    return {**os.environ, "TMPDIR": str(runtime), "XDG_RUNTIME_DIR": str(runtime)}


def command_of(launcher: str, language: str, program: list[str]) -> list[str]:
    if launcher == "hookline":
        return [*HOOKLINE, *program]
    if launcher == "torchrun":
        return [*TORCHRUN, *(["--no-python"] if language == "cpp" else []), *program]
    return [*MPIRUN, *([sys.executable] if language == "python" else []), *program]


def left_behind(environment: dict[str, str]) -> list[str]:
    return [name for name in os.listdir(environment["TMPDIR"]) if not name.startswith("torchelastic_")]


@pytest.mark.parametrize("language", ["python", "cpp"])
@pytest.mark.parametrize("launcher", ["hookline", "torchrun", "mpirun"])
def test_one_program_under_every_launcher(launcher, language, programs, environment):
    command = command_of(launcher, language, programs[language])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, EXPECTED), done.stderr
    assert left_behind(environment) == []


@pytest.mark.parametrize("launcher", VARIABLES)
def test_one_program_with_the_variables_of_other_launchers(launcher, programs, environment):
    ranks = []
    for rank, language in enumerate(["python", "cpp"]):  # both join one group
        command = [*([sys.executable] if language == "python" else []), *programs[language]]
        env = {**environment, **VARIABLES[launcher](rank)}
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    assert [rank.communicate(timeout=60)[0].strip() for rank in ranks] == EXPECTED
    assert left_behind(environment) == []
