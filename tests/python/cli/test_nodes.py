"""`hookline run` on several nodes, which are loopback addresses here: rendezvous, common end, and messages."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from node_processes import ends, own_address

import hookline as hl
from hookline.cli import nodes as node_module
from hookline.cli import run
from hookline.cli.control import Hello, JobEnd, commitment, encode

# Prints its rank variables after a barrier in the store.
RENDEZVOUS = """\
import json, os
import hookline as hl
found = hl.rendezvous(timeout=30)
found.store.barrier("all", found.world_size, 30)
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"]
names += ["MASTER_ADDR", "HOOKLINE_STORE"]
print(json.dumps([os.environ.get(name) for name in names]))
"""
# Prints "ready", then waits for a signal.
WAITING = "trap 'exit 3' USR1; echo ready; while true; do sleep 1000 & wait; done"


@pytest.fixture(autouse=True)
def shared_token(launcher):
    launcher.environment["HOOKLINE_TOKEN"] = "0123456789abcdef" * 4


@pytest.fixture
def nodes(launcher):
    """Returns start(node, count, *arguments), which starts the launcher of a node; `master` is its --master-addr."""
    master = f"{own_address()}:29500"

    def start(node, count, *arguments):
        return launcher.start("--nnodes", str(count), "--node-rank", str(node), "--master-addr", master, *arguments)

    start.master = master
    return start


def test_ranks_of_uneven_nodes_find_each_other(launcher, nodes):
    launcher.environment["HOOKLINE_STORE"] = "/a/launcher/around/this/one"
    program = launcher.program(RENDEZVOUS)
    # The other nodes may start before node 0.
    processes = [nodes(node, 3, "-n", ranks, program) for node, ranks in ((2, "1"), (1, "3"), (0, "2"))]
    rows = []
    for process in processes:
        code, out, err = ends(process)
        assert (code, err) == (0, "")
        rows += [json.loads(line) for line in out.splitlines()]
    host = nodes.master.partition(":")[0]
    local = [(0, 0, 2), (0, 1, 2), (1, 0, 3), (1, 1, 3), (1, 2, 3), (2, 0, 1)]
    expected = [
        [str(rank), "6", str(of_node), str(size), str(node), "3", str(node), host, f"tcp://{nodes.master}"]
        for rank, (node, of_node, size) in enumerate(local)
    ]
    assert sorted(rows) == expected


def test_a_failure_on_one_node_ends_the_others_with_its_exit_code(launcher, nodes):
    first = nodes(0, 2, "-n", "1", "sh", "-c", WAITING)
    second = nodes(1, 2, "-n", "2", "--prefix", "sh", "-c", WAITING)
    launcher.lines(first, 1)
    launcher.lines(second, 2)
    second.send_signal(signal.SIGUSR1)
    code, _, err = ends(second)
    assert code == 3
    assert "rank 1 (pid " in err or "rank 2 (pid " in err
    code, _, err = ends(first)
    assert code == 3
    name = socket.gethostname()
    assert err.startswith(f"hookline run: node 1 ({name}): rank ")
    assert "failed: exit code 3; the ranks of this node were terminated" in err


def test_a_node_that_fails_and_ends_between_two_polls_has_failed(monkeypatch):
    spec = node_module.NodeSpec(nodes=1, rank=0, host="127.0.0.1", port=0, timeout=30)
    agent = node_module.NodeAgent(spec, 1, "0123456789abcdef")
    agent.spec = replace(spec, nodes=2)
    agent._hellos.append(Hello(1, "other", 0, commitment(b"secret")))

    def fail_after_poll(store, *_):
        store.set("heartbeat/1", b"1")
        store.set("end", encode(JobEnd(1, "rank 1 failed", 3, "secret")))
        store.set("ended/1", b"secret")
        return False

    monkeypatch.setattr(node_module, "_wait", fail_after_poll)
    with agent:
        agent.others_ended = False
        agent.start_listening()
        assert agent.take_event() == node_module.JobEndReport("node 1 (other)", "rank 1 failed", 3)


def test_node_0_waits_for_the_others(launcher, nodes):
    first = nodes(0, 2, "-n", "1", "true")
    second = nodes(1, 2, "-n", "1", "sh", "-c", WAITING)
    launcher.lines(second, 1)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.7)
    second.send_signal(signal.SIGUSR1)
    assert ends(second)[0] == 3
    assert ends(first)[0] == 3


@pytest.mark.parametrize("node", [0, 1])
def test_a_signal_to_one_launcher_ends_the_job(launcher, nodes, node):
    processes = [nodes(n, 2, "-n", "1", "sh", "-c", WAITING) for n in range(2)]
    for process in processes:
        launcher.lines(process, 1)
    processes[node].send_signal(signal.SIGTERM)
    code, _, err = ends(processes[node])
    assert (code, err) == (128 + signal.SIGTERM, "hookline run: ended by SIGTERM\n")
    code, _, err = ends(processes[1 - node])
    assert code == 128 + signal.SIGTERM
    assert f"node {node} ({socket.gethostname()}): the launcher was ended by SIGTERM" in err


def test_a_killed_launcher_of_node_0_ends_the_others(launcher, nodes):
    processes = [nodes(n, 2, "-n", "1", "sh", "-c", WAITING) for n in range(2)]
    for process in processes:
        launcher.lines(process, 1)
    processes[0].kill()
    code, _, err = ends(processes[1])
    assert code == 1
    assert "node 0" in err
    assert nodes.master in err
    assert "lost" in err
    deadline = time.monotonic() + 30  # the reaper of the killed launcher removes its directory
    while list(launcher.runtime.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)


def start_with_short_timeout(launcher, nodes, node):
    """Starts a launcher with a heartbeat timeout of 1.5 s instead of 30 s."""
    program = launcher.program(
        "import sys\nfrom hookline.cli import main, nodes\nnodes.HEARTBEAT_TIMEOUT = 1.5\nsys.exit(main(sys.argv[1:]))",
        "short.py",
    )
    options = ["--nnodes", "2", "--node-rank", str(node), "--master-addr", nodes.master]
    return subprocess.Popen(
        [sys.executable, program, "run", *options, "-n", "1", "sh", "-c", WAITING],
        env=launcher.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_stopped_launcher_of_node_0_ends_the_others(launcher, nodes):
    first = nodes(0, 2, "-n", "1", "sh", "-c", WAITING)
    second = start_with_short_timeout(launcher, nodes, 1)
    try:
        launcher.lines(first, 1)
        launcher.lines(second, 1)
        first.send_signal(signal.SIGSTOP)
        code, _, err = ends(second, 60)
        assert code == 1
        assert f"node 0 ({socket.gethostname()}): lost the connection to its store: " in err
    finally:
        second.kill()
        second.wait()
        first.send_signal(signal.SIGTERM)
        first.send_signal(signal.SIGCONT)
    code, _, err = ends(first)
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in err


def test_node_0_serves_more_clients_than_its_soft_limit_of_descriptors(launcher, nodes):
    token = launcher.environment["HOOKLINE_TOKEN"]
    command = ["sh", "-c", f"ulimit -n; {WAITING}"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        processes = [nodes(node, 2, "-n", "1", *command) for node in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for process in processes:
        assert launcher.lines(process, 2) == [b"64\n", b"ready\n"]  # ranks keep the user's soft limit
    host, _, port = nodes.master.partition(":")
    clients = [hl.TCPStore(host, int(port), token=token) for _ in range(80)]
    assert clients[-1].num_keys() > 0
    del clients
    processes[0].send_signal(signal.SIGTERM)
    for process in processes:
        ends(process)


def test_a_launcher_without_heartbeats_ends_the_job(launcher, nodes):
    second = nodes(1, 2, "-n", "1", "sh", "-c", WAITING)
    first = start_with_short_timeout(launcher, nodes, 0)
    try:
        launcher.lines(first, 1)
        launcher.lines(second, 1)
        second.send_signal(signal.SIGSTOP)
        code, _, err = ends(first)
        assert code == 1
        assert f"no heartbeat from node 1 ({socket.gethostname()}) for 1.5 s" in err
    finally:
        first.kill()
        first.wait()
        second.send_signal(signal.SIGCONT)
    assert ends(second)[0] == 1


def test_a_port_in_use(launcher, nodes):
    host, _, port = nodes.master.partition(":")
    with socket.create_server((host, int(port))):
        code, out, err = ends(nodes(0, 2, "-n", "1", "true"))
    assert (code, out) == (1, "")
    assert nodes.master in err
    assert "another program uses this port. Choose another one.\n" in err
    assert "Traceback" not in err


def test_another_program_listens_at_the_master_address(launcher, nodes):
    host, _, port = nodes.master.partition(":")
    with socket.create_server((host, int(port))):
        code, _, err = ends(nodes(1, 2, "--timeout", "1", "-n", "1", "true"))
    assert code == 1
    assert nodes.master in err


@pytest.mark.parametrize("node", ["0", "1"])
def test_a_host_that_does_not_exist(launcher, node):
    arguments = [
        "--nnodes",
        "2",
        "--node-rank",
        node,
        "--master-addr",
        "no-such-host.invalid:29500",
        "--timeout",
        "0.5",
    ]
    code, out, err = ends(launcher.start(*arguments, "-n", "1", "true"))
    assert (code, out) == (1, "")
    assert "--master-addr no-such-host.invalid:29500: the host name 'no-such-host.invalid' does not resolve" in err
    assert "retrying for 0.5 s" in err
    assert "Traceback" not in err


def test_an_address_of_another_machine(launcher):
    arguments = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "192.0.2.77:29500", "--timeout", "5"]
    code, _, err = ends(launcher.start(*arguments, "-n", "1", "true"))
    assert code == 1
    assert "192.0.2.77:29500" in err
    assert "not an address of this machine" in err


def test_a_node_that_never_joins(launcher, nodes):
    first = nodes(0, 3, "--timeout", "1.5", "-n", "1", "true")
    second = nodes(2, 3, "--timeout", "20", "-n", "1", "true")
    code, out, err = ends(first)
    assert (code, out) == (1, "")
    assert f"node 1 of 3 did not join at {nodes.master} within 1.5 s" in err
    code, _, err = ends(second)  # ends with node 0, before its own timeout
    assert code == 1
    assert "node 1 did not join within 1.5 s" in err or "lost" in err or "closed" in err


def test_a_node_0_that_never_starts(launcher, nodes):
    code, _, err = ends(nodes(1, 2, "--timeout", "0.5", "-n", "1", "true"))
    assert code == 1
    assert nodes.master in err
    assert "The client socket has timed out" in err


def test_launchers_that_contradict_each_other(launcher, nodes):
    first = nodes(1, 3, "-n", "1", "true")
    again = nodes(1, 3, "-n", "1", "true")
    master = nodes(0, 3, "-n", "1", "true")
    first_to_end = wait_for_one(first, again)
    code, _, err = ends(first_to_end)
    assert code == 1
    assert f"--node-rank 1: another launcher at {nodes.master} has the same --node-rank" in err

    code, _, err = ends(nodes(1, 4, "-n", "1", "true"))
    assert code == 1
    assert f"--nnodes 4: another launcher at {nodes.master} was started with --nnodes 3" in err
    for process in (master, again if first_to_end is first else first):
        code, _, err = ends(process)
        assert code == 1
        assert "--nnodes 4" in err or "lost" in err or "closed" in err


def wait_for_one(*processes):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                return process
        time.sleep(0.01)
    raise AssertionError("none of them ended")


def test_an_interrupt_while_waiting_for_the_others(launcher, nodes):
    process = nodes(0, 2, "-n", "1", "true")
    host, _, port = nodes.master.partition(":")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            break
        except OSError:
            time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, _, err = ends(process)
    assert (code, err) == (130, "hookline run: ended by SIGINT\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nnodes", "0"], "at least 1 node"),
        (["--nnodes", "32768"], "expected at most 32767 nodes"),
        (["--nnodes", "2"], "--node-rank and --master-addr are required"),
        (["--nnodes", "2", "--node-rank", "0"], "--node-rank and --master-addr are required"),
        (
            ["--nnodes", "2", "--node-rank", "2", "--master-addr", "h:1"],
            "--node-rank 2: expected 0 to 1 with --nnodes 2",
        ),
        (["--nnodes", "2", "--node-rank", "-1", "--master-addr", "h:1"], "--node-rank -1"),
        (["--master-addr", "host"], "expected HOST:PORT"),
        (["--master-addr", ":1"], "expected HOST:PORT"),
        (["--master-addr", "host:"], "expected a port from 1"),
        (["--master-addr", "host:0"], "from 1 to 65535"),
        (["--master-addr", "host:65536"], "from 1 to 65535"),
        (["--master-addr", "::1:29500"], "in brackets"),
        (["--master-addr", "h:1", "--timeout", "0"], "--timeout 0.0"),
    ],
)
def test_invalid_command_lines(capfd, arguments, words):
    with pytest.raises(SystemExit) as ended:
        sys.exit(run.main([*arguments, "-n", "1", "true"]))
    assert ended.value.code == 2
    assert words in capfd.readouterr().err


def test_one_node_with_a_master_and_an_address_in_brackets():
    options = run.parse(["--master-addr", "[::1]:29500", "-n", "2", "true"])
    spec = options.node_spec
    assert (spec.nodes, spec.rank, spec.host, spec.port) == (1, 0, "::1", 29500)
    assert run.parse(["-n", "2", "true"]).node_spec is None


# PyTorch's own rendezvous through env://.
TORCH = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(dist.get_rank(), dist.get_world_size(), x[0].item())
dist.destroy_process_group()
"""


def test_a_pytorch_program(launcher, nodes):
    launcher.environment["GLOO_SOCKET_IFNAME"] = "lo"
    program = launcher.program(TORCH)
    processes = [nodes(node, 2, "-n", "1", program) for node in range(2)]
    for node, process in enumerate(processes):
        code, out, err = ends(process, 120)
        assert (code, out) == (0, f"{node} 2 3.0\n"), err


def test_torchrun_on_two_nodes(launcher, tmp_path):
    program = launcher.program(RENDEZVOUS)
    host = own_address()
    base = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    base += [f"--rdzv-endpoint={host}:29400", "--rdzv-id=job", "--local-addr=127.0.0.1"]
    agents = [
        subprocess.Popen(
            [*base, program],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    try:
        rows = []
        for agent in agents:
            code, out, err = ends(agent, 120)
            assert code == 0, err
            rows += [json.loads(line)[:6] for line in out.splitlines()]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    assert sorted(rows) == [["0", "2", "0", "1", "0", "2"], ["1", "2", "0", "1", "1", "2"]]


def test_a_rank_that_ends_well_before_the_group_is_made_is_told_on_other_nodes(launcher, nodes):
    program = launcher.program(
        "import os, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    sys.exit()\n"
        "import hookline as hl\n"
        "try:\n"
        "    hl.init_process_group(timeout=600)\n"
        "except hl.PeerLost as error:\n"
        "    print(error.ranks, 'rank 1 exited' in str(error))\n"
    )
    processes = [nodes(node, 2, "-n", "1", program) for node in range(2)]
    assert [ends(process)[:2] for process in processes] == [(0, "(1,) True\n"), (0, "")]
