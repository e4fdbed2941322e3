"""The token of a job: its sources, refused files, and its distribution to the ranks."""

import json
import os
import stat
import sys

import pytest
from node_processes import ends, own_address

from hookline.cli import job_token, run

TOKEN = "0123456789abcdef" * 4
SHOW = "import os; print(os.environ['HOOKLINE_TOKEN'])"


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def test_ranks_of_one_host_share_a_token_of_their_job(launcher):
    tokens = [launcher.run("-n", "2", launcher.program(SHOW)).stdout.split() for _ in range(2)]
    for first, second in tokens:
        assert first == second
        assert len(first) == 64
    assert tokens[0] != tokens[1]


def test_a_token_from_the_environment_or_a_file_reaches_the_ranks(launcher, secret_file):
    launcher.environment["HOOKLINE_TOKEN"] = "of-the-environment\n"
    assert launcher.run("-n", "1", launcher.program(SHOW)).stdout == b"of-the-environment\n"
    done = launcher.run("--token-file", str(secret_file), "-n", "1", launcher.program(SHOW))
    assert done.stdout.decode() == f"{TOKEN}\n"


def start(launcher, node, master, *arguments):
    options = ["--nnodes", "2", "--node-rank", str(node), "--master-addr", master, "--timeout", "20"]
    return launcher.start(*options, *arguments, "-n", "1", launcher.program(SHOW))


def test_several_nodes_without_a_token_are_told_how_to_make_one(launcher):
    for node in range(2):
        code, out, err = ends(start(launcher, node, f"{own_address()}:29500"))
        assert (code, out) == (2, "")
        assert "--nnodes 2: no token: the launchers of a multi-node job must share one" in err
        assert "Set HOOKLINE_TOKEN" in err
        assert "--token-file FILE" in err


def test_node_0_creates_the_file_and_the_others_wait_for_it(launcher, tmp_path):
    path, master = tmp_path / "token", f"{own_address()}:29500"
    second = start(launcher, 1, master, "--token-file", str(path))
    assert b"waiting 20 s for node 0 to create it" in second.stderr.readline()
    first = start(launcher, 0, master, "--token-file", str(path))
    code, out, err = ends(first)
    assert code == 0, err
    assert f"--token-file {path}: created" in err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert out == path.read_text()
    assert len(out) == 65
    assert ends(second)[:2] == (0, out)
    assert sorted(os.listdir(tmp_path)) == ["program.py", "runtime", "token"]
    # A second job reuses the file.
    processes = [start(launcher, node, master, "--token-file", str(path)) for node in range(2)]
    assert [ends(process) for process in processes] == [(0, out, "")] * 2


def test_a_file_that_is_never_created(launcher, tmp_path, monkeypatch):
    monkeypatch.setattr(job_token, "POLL_INTERVAL", 0.01)
    with pytest.raises(job_token.TokenError, match=r"no such file\. Copy it from node 0"):
        job_token.token_from_file(str(tmp_path / "token"), creates=False, timeout=0.05)


def test_nodes_with_different_tokens_do_not_join(launcher):
    master = f"{own_address()}:29500"
    launcher.environment["HOOKLINE_TOKEN"] = TOKEN
    first = start(launcher, 0, master)
    launcher.environment["HOOKLINE_TOKEN"] = TOKEN[::-1]
    code, _, err = ends(start(launcher, 1, master))
    assert code == 1
    assert f"TCPStore({master}): the server's token differs" in err
    launcher.environment["HOOKLINE_TOKEN"] = TOKEN
    assert ends(start(launcher, 1, master))[0] == 0
    code, out, err = ends(first)
    assert (code, out) == (0, f"{TOKEN}\n")
    assert "its token differs from the server's" in err
    assert TOKEN not in err


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.chmod(0o640), "expected mode 0600, got 0640. Run chmod 600"),
        (lambda path: path.chmod(0o604), "expected mode 0600, got 0604"),
        (lambda path: os.chown(path, 12345, -1), "owned by another user: expected uid 0, got 12345"),
        (lambda path: path.write_text("short\n"), "expected 16 to 1024 printable ASCII characters"),
        (lambda path: path.write_text(""), "expected 16 to 1024"),
        (lambda path: path.write_bytes(b"\xff" * 32), "printable ASCII"),
        (lambda path: path.write_text("x" * 2000), "expected 16 to 1024"),
        (lambda path: (path.unlink(), path.mkdir(mode=0o700)), "Is a directory"),
        (lambda path: (path.unlink(), os.mkfifo(path, 0o600)), "not a regular file"),
    ],
)
def test_a_file_that_is_refused(secret_file, capfd, spoil, words):
    spoil(secret_file)
    with pytest.raises(SystemExit) as ended:
        sys.exit(run.main(["--token-file", str(secret_file), "-n", "1", "true"]))
    assert ended.value.code == 2
    err = capfd.readouterr().err
    assert words in err
    assert f"--token-file {secret_file}" in err


def test_a_file_that_cannot_be_created(tmp_path, capfd):
    with pytest.raises(SystemExit) as ended:
        sys.exit(run.main(["--token-file", str(tmp_path / "nowhere" / "token"), "-n", "1", "true"]))
    assert ended.value.code == 2
    assert "cannot create the file: No such file or directory" in capfd.readouterr().err


def test_the_token_is_no_option(capfd):
    with pytest.raises(SystemExit):
        run.main(["-n", "1", "--token", TOKEN, "true"])  # the command line is visible to all users
    assert "--token" in capfd.readouterr().err


# PyTorch's store and the launcher's store are separate: a program can use both.
BOTH = """\
import json, os
import hookline as hl
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
found = hl.rendezvous(timeout=30)
found.store.barrier("all", found.world_size, 30)
print(json.dumps([x.item(), type(found.store).__name__, found.store.port, int(os.environ["MASTER_PORT"])]))
dist.destroy_process_group()
"""


def test_pytorch_has_a_store_of_its_own(launcher):
    launcher.environment |= {"HOOKLINE_TOKEN": TOKEN, "GLOO_SOCKET_IFNAME": "lo"}
    master = f"{own_address()}:29500"
    program = launcher.program(BOTH, "both.py")
    options = ["--nnodes", "2", "--master-addr", master, "-n", "1", program]
    processes = [launcher.start("--node-rank", str(node), *options) for node in range(2)]
    ports = set()
    for process in processes:
        code, out, err = ends(process, 110)
        assert code == 0, err
        total, store, port, torch_port = json.loads(out)
        assert (total, store, port) == (3.0, "TCPStore", 29500)
        ports.add(torch_port)
    assert len(ports) == 1
    assert 29500 not in ports
