"""Groups on the transport gloo, in one process with PyTorch's own Gloo."""

import os
import subprocess
import sys

import pytest

import hookline


@pytest.mark.parametrize("torch_first", [True, False])
def test_beside_torch_s_own_gloo_in_one_process(launch, tmp_path, torch_first):
    imports = ["import torch, torch.distributed as dist", "import hookline as hl"]
    done = launch(
        2,
        "\n".join(imports if torch_first else imports[::-1])
        + f"""
import numpy as np
rank = int(__import__("os").environ["RANK"])
def theirs():
    dist.init_process_group("gloo", init_method="file://{tmp_path}/torch", rank=rank, world_size=2)
def ours():
    group = hl.init_process_group("gloo", timeout=60, backend_options={{"interface": "lo"}})
    assert (group.name(), group.size()) == ("gloo", 2)
    return group
if {torch_first}:
    theirs()
    group = ours()
else:
    group = ours()
    theirs()
for count in (3, 100_000):
    a = torch.full((count,), rank + 1.0)
    b = torch.full((count,), rank + 1.0, dtype=torch.bfloat16)
    c = np.full(count, rank + 1, np.int64)
    dist.all_reduce(a)
    work = group.allreduce([b])
    group.allreduce([c], op=hl.ReduceOp.PRODUCT).wait()
    work.wait()
    assert (a == 3).all() and (b == 3).all() and (c == 2).all()
with np.testing.assert_raises_regex(hl.Mismatch, "rank 1: allreduce of 4 float32, sum"):
    group.allreduce([torch.zeros(3 + rank)]).wait()
group.barrier().wait()
dist.barrier()
dist.destroy_process_group()
""",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_interfaces_and_options_are_named():
    store = hookline.MemoryStore()
    with pytest.raises(hookline.InvalidArgument, match=r"expected one of .*lo, got 'no_such0'"):
        hookline.init_process_group(
            "gloo", store=store, rank=0, world_size=2, timeout=5, backend_options={"interface": "no_such0"}
        )
    with pytest.raises(hookline.Timeout, match="rank 1 did not join"):
        hookline.init_process_group("gloo", store=store, rank=0, world_size=2, timeout=0.05)
    with pytest.raises(hookline.InvalidArgument, match="got 'wait_policy=never'"):
        hookline.init_process_group("shm", store=store, rank=0, world_size=1, backend_options={"wait_policy": "never"})


def alone(backend=None, **options):
    store = hookline.MemoryStore()
    return hookline.init_process_group(backend, store=store, rank=0, world_size=1, backend_options=options)


def test_options_for_several_hosts_are_accepted_on_one():
    for options in ({"interface": "no_such0"}, {"transport": "gloo", "address": "10.1.2.3"}, {"wait_policy": "block"}):
        assert alone(**options).getBackendName() == "shm"
    assert alone("hierarchical", transport="gloo", interface="no_such0").getBackendName() == "shm"


def test_unknown_options_are_named_on_one_host_too():
    with pytest.raises(hookline.InvalidArgument, match=r"unknown option 'colour=red'.*interface \(gloo\)"):
        alone(colour="red")
    with pytest.raises(hookline.InvalidArgument, match="unknown option 'colour=red'"):
        alone("hierarchical", colour="red")
    with pytest.raises(hookline.InvalidArgument, match="unknown option 'address=node7'"):
        alone(transport="mpi", address="node7")
    with pytest.raises(hookline.InvalidArgument, match="unknown option 'wait_policy=block'"):
        alone("hierarchical", wait_policy="block")
    for backend in (None, "hierarchical"):
        with pytest.raises(hookline.InvalidArgument, match="unknown backend 'nonsense'"):
            alone(backend, transport="nonsense")


def test_wait_policy_block(launch):
    code = (
        "import hookline as hl, numpy as np\n"
        "group = hl.init_process_group('shm', timeout=30, backend_options={'wait_policy': 'block'})\n"
        "for count in (1, 100_000):\n"
        "    for _ in range(100):\n"
        "        values = np.ones(count, np.float32)\n"
        "        group.allreduce([values]).wait()\n"
        "        assert (values == 3).all()\n"
    )
    done = launch(3, code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_group_of_one(launch):
    done = launch(1, "import hookline as hl\nassert hl.init_process_group('gloo', timeout=30).size() == 1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_host_without_ports_says_what_to_widen(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import hookline as hl\nhl.init_process_group('gloo', timeout=20)\n")
    ports = "ip link set lo up && echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range"
    unshare = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    done = subprocess.run(
        [*unshare, "sh", "-c", f'{ports} && exec "$@"', "sh", sys.executable, "-m", "hookline", "run", "-n4", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "hookline.ResourceError: gloo" in done.stderr
    assert "net.ipv4.ip_local_port_range" in done.stderr
