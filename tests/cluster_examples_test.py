"""Runs the cluster examples unchanged, with stubs for srun, scontrol and the DNS names of pods."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples/clusters"
MANIFEST = EXAMPLES / "kubernetes_job.yaml"
JOB = 4711
OTHERS = ("SLURM_", "MASTER", "HOOKLINE_TOKEN")  # prefixes of inherited variables that must not reach a job

PROGRAM = """\
import sys, numpy as np, hookline as hl
group = hl.init_process_group(timeout=60)
x = np.ones(8, np.float32)
group.allreduce([x]).wait()
sys.stdout.write(f"rank {group.rank()} of {group.size()}: {x[0]:g}\\n")  # a line at once: all write to one pipe
"""
EXPECTED = [f"rank {rank} of 4: 4" for rank in range(4)]

# A stub of srun: starts the tasks of a step with Slurm's variables, all of them on this machine.
SRUN = """\
import json, os, subprocess, sys
nodes, each = json.loads(os.environ["TEST_SHAPE"])
command = [word for word in sys.argv[1:] if word != "--kill-on-bad-exit=1"]
tasks = []
for task in range(nodes * each):
    mine = {"SLURM_PROCID": task, "SLURM_LOCALID": task % each, "SLURM_NODEID": task // each, "SLURM_STEP_ID": 0}
    mine |= {"SLURM_NTASKS": nodes * each, "SLURM_STEP_NUM_TASKS": nodes * each, "SLURM_STEP_NUM_NODES": nodes}
    mine |= {"SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"]}
    tasks.append(subprocess.Popen(command, env={**os.environ, **{k: str(v) for k, v in mine.items()}}))
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = "import sys\nassert sys.argv[1:3] == ['show', 'hostnames']\nprint(sys.argv[3].replace(',', '\\n'))\n"


def own_address() -> str:
    """Returns a random loopback address, so that parallel tests do not share ports."""
    return f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The environment of a node: its programs, and a folder with train.py."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(f"#!{sys.executable}\n{text}")
    (programs / "hookline").write_text(f'#!/bin/sh\nexec {sys.executable} -m hookline "$@"\n')
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    (tmp_path / "train.py").write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    return {**kept, "PATH": f"{programs}:{kept['PATH']}", "TMPDIR": str(tmp_path), "FOLDER": str(tmp_path)}


def finish(process: "subprocess.Popen[str]") -> list[str]:
    try:
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    return out.splitlines()


def start(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        env=environment,
        cwd=environment["FOLDER"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", ["slurm_srun.sbatch", "slurm_launcher.sbatch"])
def test_a_slurm_job(cluster: dict[str, str], name: str) -> None:
    script = EXAMPLES / name
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    directives = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", script.read_text(), re.MULTILINE))
    nodes, each = int(directives["nodes"]), int(directives["ntasks-per-node"])
    host = own_address()
    # The variables that sbatch sets. The first host is this machine; ranks read no other host of the list.
    batch = {
        "SLURM_JOB_ID": str(JOB),
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NODELIST": ",".join([host, *(f"node{n}" for n in range(1, nodes))]),
        "SLURM_CPUS_PER_TASK": directives["cpus-per-task"],
        "SLURM_NTASKS": str(nodes * each),
        "SLURM_PROCID": "0",
        "TEST_SHAPE": json.dumps([nodes, each]),
    }
    assert sorted(finish(start(["bash", str(script)], {**cluster, **batch}))) == EXPECTED


def test_a_kubernetes_job(cluster: dict[str, str]) -> None:
    service, job = yaml.safe_load_all(MANIFEST.read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # The manifest must refer to the secret by the name and key of its own `kubectl create secret` command.
    create = re.search(r"kubectl create secret generic (\S+) --from-literal=(\w+)=", MANIFEST.read_text())
    secret = {"name": create[1], "key": create[2]} if create else None
    variables = {
        variable["name"]: variable.get("value", "a secret of this job")
        for variable in container["env"]
        if "value" in variable or variable["valueFrom"] == {"secretKeyRef": secret}
    }
    assert "HOOKLINE_TOKEN" in variables
    host, _, port = variables["MASTER"].partition(":")
    # MASTER must be the DNS name of pod 0. Only a cluster resolves it, so the test then replaces it.
    assert (service["kind"], job["kind"], job["spec"]["completionMode"]) == ("Service", "Job", "Indexed")
    assert host == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert [entry["port"] for entry in service["spec"]["ports"]] == [int(port)]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(variables["NODES"])
    variables["MASTER"] = f"{own_address()}:{port}"
    pods = [
        start([*container["command"], *container["args"]], {**cluster, **variables, "JOB_COMPLETION_INDEX": str(index)})
        for index in range(job["spec"]["completions"])
    ]
    lines: list[str] = []
    for each in pods:
        lines += finish(each)
    assert sorted(lines) == EXPECTED
