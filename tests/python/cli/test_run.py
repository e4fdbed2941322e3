"""`hookline run`: the rank environment, forwarded output, and errors before the start."""

import importlib.metadata
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from hookline import cli
from hookline.cli import run


def test_ranks_find_the_rendezvous_variables(launcher):
    program = launcher.program(
        "import os, stat, sys\n"
        "store = os.environ['HOOKLINE_STORE']\n"
        "mode = stat.S_IMODE(os.stat(os.path.dirname(store)).st_mode)\n"
        "names = ['RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'HOOKLINE_STORE']\n"
        "print(*(os.environ[name] for name in names), oct(mode), sys.executable)\n"
    )
    done = launcher.run("-n", "3", program)
    assert (done.returncode, done.stderr) == (0, b"")
    rows = sorted(line.split() for line in done.stdout.decode().splitlines())
    assert [row[:4] for row in rows] == [[str(rank), "3", str(rank), "3"] for rank in range(3)]
    stores = {row[4] for row in rows}
    assert len(stores) == 1
    assert stores.pop().startswith(f"{launcher.runtime}/hookline-")
    assert {tuple(row[5:]) for row in rows} == {("0o700", sys.executable)}


def test_two_launchers_have_two_stores(launcher):
    stores = [launcher.run("-n", "1", "sh", "-c", "echo $HOOKLINE_STORE").stdout for _ in range(2)]
    assert stores[0] != stores[1]


def test_ranks_share_the_cores_unless_the_user_says_otherwise():
    cores = len(os.sched_getaffinity(0))
    assert run.environment(0, 1, "s", "t", {}).get("OMP_NUM_THREADS") is None
    assert run.environment(1, 2, "s", "t", {})["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert run.environment(0, 10 * cores, "s", "t", {})["OMP_NUM_THREADS"] == "1"
    assert run.environment(0, 2, "s", "t", {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
    assert run.environment(0, 2, "s", "t", {"RANK": "9"})["RANK"] == "0"
    outer_launcher = {"GROUP_RANK": "1", "NODE_RANK": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert run.environment(0, 2, "s", "t", outer_launcher) == run.environment(0, 2, "s", "t", {})


def test_a_port_is_kept_for_rank_0_where_pytorchs_store_can_listen(launcher):
    program = launcher.program(
        "import os, socket\n"
        "server = socket.socket()\n"
        "server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PyTorch's store does\n"
        "server.bind((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
        "server.listen()\n"
        "print(server.getsockname()[1] == int(os.environ['MASTER_PORT']) > 0)\n"
    )
    done = launcher.run("-n", "1", program)
    assert done.stdout == b"True\n", done.stderr
    with run.reserved_port() as one, run.reserved_port() as other:
        assert one != other


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_arguments_reach_the_program(launcher, separator):
    program = launcher.program("import sys; print(sys.argv[1:])")
    done = launcher.run("-n", "1", *separator, program, "-n", "7", "--prefix", "--", "a b", "")
    assert done.stdout.decode() == "['-n', '7', '--prefix', '--', 'a b', '']\n"
    done = launcher.run("-n1", *separator, "printf", "%s.", "-n", "--grace")
    assert done.stdout == b"-n.--grace."


def test_module(launcher):
    launcher.program("import sys; print(__name__, sys.argv[1:])", "some_module.py")
    done = launcher.run("-n", "2", "-m", "some_module", "-m", "x")
    assert done.stdout.decode() == "__main__ ['-m', 'x']\n" * 2


def test_only_rank_0_reads_stdin(launcher):
    process = launcher.start("-n", "3", "--prefix", "sh", "-c", "cat; echo end", stdin=subprocess.PIPE)
    # The stdin of the other ranks is at EOF at once, while that of rank 0 is still open.
    assert sorted(launcher.lines(process, 2)) == [b"[1] end\n", b"[2] end\n"]
    out, _ = process.communicate(b"typed\n", timeout=30)
    assert out == b"[0] typed\n[0] end\n"


def test_prefix_is_at_the_beginning_of_every_line(launcher):
    program = launcher.program(
        "import os, sys\n"
        "for part in ('one', ' line\\ntwo\\n\\nunfinished'):\n"
        "    os.write(1, part.encode())\n"
        "os.write(2, b'error\\n')\n"
    )
    done = launcher.run("-n", "2", "--prefix", program)
    expected = [f"[{rank}] {line}" for rank in range(2) for line in ("one line", "two", "", "unfinished")]
    assert sorted(done.stdout.decode().splitlines()) == sorted(expected)
    assert sorted(done.stderr.splitlines()) == [b"[0] error", b"[1] error"]


def test_unfinished_last_lines_stay_apart(launcher):
    done = launcher.run("-n", "3", "sh", "-c", "printf 'rank %s' $RANK")
    assert sorted(done.stdout.splitlines()) == [b"rank 0", b"rank 1", b"rank 2"]


def test_lines_of_stdout_and_stderr_stay_apart_in_one_file(launcher):
    program = launcher.program(
        "import os\n"
        "for i in range(300):\n"
        "    os.write(1, b'o' * 9000)\n"
        "    os.write(2, b'e' * 7000 + b'\\n')\n"
        "    os.write(1, b'o' * 9000 + b'\\n')\n"
    )
    process = launcher.start("-n", "2", program, stderr=subprocess.STDOUT)
    lines = Counter(process.communicate()[0].splitlines())
    assert lines == {b"o" * 18000: 600, b"e" * 7000: 600}


def test_much_output_is_intact(launcher):
    # 4 x 1.3 MB, written in pieces that do not end at line breaks.
    program = launcher.program(
        "import os\n"
        "rank = os.environ['RANK']\n"
        "data = ''.join(f'{rank}:{i}:{\"x\" * (i % 97)}\\n' for i in range(23000)).encode()\n"
        "while data:\n"
        "    data = data[os.write(1, data[:7919]):]\n"
    )
    done = launcher.run("-n", "4", program)
    assert len(done.stdout) > 5_000_000
    lines = done.stdout.decode().splitlines()
    for rank in "0123":
        mine = [line for line in lines if line.startswith(f"{rank}:")]
        assert mine == [f"{rank}:{i}:{'x' * (i % 97)}" for i in range(23000)]
    assert len(lines) == 4 * 23000


def test_long_lines_are_whole(launcher):
    program = launcher.program(
        "import os, sys\n"
        "sys.stdout.write(os.environ['RANK'] * 3_000_000)\n"
        "sys.stdout.flush()\n"
        "sys.stdout.write('\\n')\n"
    )
    done = launcher.run("-n", "3", program)
    assert sorted(done.stdout.split()) == [b"%d" % rank * 3_000_000 for rank in range(3)]


def test_a_line_beyond_all_bounds_passes(launcher):
    done = launcher.run("-n", "2", "sh", "-c", 'head -c $(($RANK * 20000000)) /dev/zero; echo "rank $RANK"')
    assert done.returncode == 0
    assert done.stdout.count(b"\0") == 20_000_000
    assert b"rank 0\n" in done.stdout
    assert b"\0rank 1\n" in done.stdout


def test_any_bytes_pass(launcher):
    (launcher.folder / "bytes").write_bytes(bytes(range(256)) * 100)
    assert launcher.run("-n", "1", "cat", "bytes").stdout == bytes(range(256)) * 100


def test_output_to_a_regular_file(launcher):
    with open(launcher.folder / "out", "wb") as out:
        assert launcher.start("-n", "2", "echo", "line", stdout=out).wait() == 0
    assert (launcher.folder / "out").read_bytes() == b"line\nline\n"


def test_output_comes_while_the_rank_runs_and_a_terminal_shows_unfinished_lines(launcher):
    program = launcher.program("import os\nif os.environ['RANK'] == '0': print('hello', input('name? '))")
    main, terminal = os.openpty()
    process = launcher.start("-n", "2", "--prefix", program, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)

    def read_until(text):
        seen = b""
        while text not in seen:
            seen += os.read(main, 4096)
        return seen

    assert read_until(b"name? ") == b"[0] name? "
    os.write(main, b"Ada\n")
    read_until(b"hello Ada")
    assert process.wait() == 0
    os.close(main)


def test_closed_standard_files(launcher):
    shell = f"exec {sys.executable} -m hookline run -n 2 sh -c 'echo hello' 0<&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", shell], env=launcher.environment, timeout=30)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-n", "0", "echo"], 2, "at least 1 rank"),
        (["-n", "-1", "echo"], 2, "at least 1 rank"),
        (["-n", "65537", "echo"], 2, "at most 65536 ranks"),
        (["-n", "x", "echo"], 2, "invalid int value: 'x'"),
        (["echo"], 2, "required: -n"),
        (["-n", "2"], 2, "no program given"),
        (["-n", "2", "--"], 2, "no program given"),
        (["-n", "2", "-m"], 2, "no module given"),
        (["-n", "2", "--grace", "-1", "echo"], 2, "--grace -1.0"),
        (["-n", "2", "--grace", "nan", "echo"], 2, "--grace nan"),
        (["-n", "2", "--unknown", "echo"], 2, "--unknown"),
        (["-n", "2", "no_such_program"], 127, "no program 'no_such_program' in the PATH"),
        (["-n", "2", "./no_such_program"], 127, "no program './no_such_program'"),
        (["-n", "2", "plain"], 127, "use './plain'"),
        (["-n", "2", "no_such.py"], 127, "no Python file 'no_such.py'"),
        (["-n", "2", "-m", "no_such.module"], 127, "no Python module 'no_such'"),
        (["-n", "2", "./plain"], 126, "not an executable file"),
        (["-n", "2", "/"], 126, "not an executable file"),
    ],
)
def test_programs_that_cannot_start_are_reported_at_once(tmp_path, monkeypatch, capfd, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").touch()
    with pytest.raises(SystemExit) as ended:
        sys.exit(run.main(arguments))  # argparse exits by itself
    assert ended.value.code == code
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err


def test_an_executable_file_that_is_not_a_program(launcher):
    os.chmod(launcher.program("\0\1\2", "nonsense"), 0o755)
    done = launcher.run("-n", "2", "./nonsense")
    assert (done.returncode, done.stdout) == (126, b"")
    assert done.stderr.startswith(b"hookline run: cannot start 2 ranks of ./nonsense: ")
    assert b"Exec format error" in done.stderr


def test_too_many_ranks_for_the_system(launcher):
    # The limit is the launcher's: it opens three files for each rank.
    shell = f"ulimit -n 40; exec {sys.executable} -m hookline run -n 30 sleep 1000"
    done = subprocess.run(["sh", "-c", shell], env=launcher.environment, timeout=30, capture_output=True, text=True)
    assert done.returncode == 126
    assert "Too many open files" in done.stderr
    assert "Traceback" not in done.stderr


def test_help(launcher, capsys):
    done = launcher.run("--help")
    assert done.returncode == 0
    for word in ("-n RANKS", "--prefix", "--grace SECONDS", "-m MODULE", "HOOKLINE_STORE"):
        assert word in done.stdout.decode()
    assert cli.main(["--help"]) == 0
    assert "run " in capsys.readouterr().out


def test_command_line_without_a_command(capsys):
    assert cli.main([]) == 2
    assert cli.main(["nonsense"]) == 2
    assert "unknown command 'nonsense'" in capsys.readouterr().err
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hookline 0.")


def test_a_closed_stdout_is_not_an_error():
    command = [sys.executable, "-m", "hookline", "hooks"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_the_command_is_part_of_the_distribution():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="hookline")
    assert command.load() is cli.main


ENDS_EARLY = """
import os, sys
if os.environ["RANK"] == "1":
    sys.exit()
import hookline as hl
try:
    hl.init_process_group(timeout=600)
except hl.PeerLost as error:
    print(error.ranks, "rank 1 exited" in str(error))
"""


def test_a_rank_that_ends_well_before_the_group_is_made_is_told_to_the_others(launcher):
    done = launcher.run("-n", "3", launcher.program(ENDS_EARLY))
    assert done.stdout.decode() == "(1,) True\n" * 2, done.stderr
    assert done.returncode == 0
