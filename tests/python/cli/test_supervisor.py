"""The end of ranks: failures, signals, orphaned processes, and a killed launcher."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

# Prints "ready" without flushing, then the name of each received signal, until SIGUSR2.
LISTENER = """\
import os, signal
every = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
print("ready")
while (got := signal.Signals(signal.sigwait(every)).name) != "SIGUSR2":
    print(got, os.environ["RANK"])
"""
# The shell and its child both ignore SIGTERM.
STUBBORN = "trap '' TERM INT; echo ready; sleep 1000"


def test_the_first_failure_is_reported_and_ends_the_others(launcher):
    program = launcher.program(
        "import os, signal, sys\n"
        "if os.environ['RANK'] != '2': signal.pause()\n"
        "print(os.getpid())\n"
        "for i in range(100): print(f'line {i}', file=sys.stderr)\n"
        "sys.stderr.write('unfinished \\udcff')\n"
        "sys.exit(7)\n"
    )
    done = launcher.run("-n", "4", program)
    assert done.returncode == 7
    text = done.stderr.decode()
    report = text[text.index("hookline run:") :].splitlines()
    pid = int(done.stdout)
    assert report[0] == f"hookline run: rank 2 (pid {pid}) failed: exit code 7; the other 3 ranks were terminated"
    assert report[1:] == ["last lines of its stderr:", *(f"  line {i}" for i in range(81, 100)), r"  unfinished \udcff"]
    assert text.startswith("".join(f"line {i}\n" for i in range(100)))


def test_a_crash_is_named(launcher):
    done = launcher.run("-n", "2", "sh", "-c", "test $RANK = 0 && kill -SEGV $$; sleep 1000")
    assert done.returncode == 128 + signal.SIGSEGV
    assert b"rank 0 (pid " in done.stderr
    assert b"failed: signal 11 (SIGSEGV); the other rank was terminated" in done.stderr
    assert b"last lines of its stderr" not in done.stderr


WAITS, EXITS = "echo $$; exec sleep 1000", "echo $$; exit 0"


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([WAITS], "; the other rank was terminated"),
        ([WAITS, WAITS], "; the other 2 ranks were terminated"),
        ([EXITS], "; rank 1 had already exited (exit code 0)"),
        ([EXITS, EXITS], "; ranks 1, 2 had already exited (exit code 0)"),
        ([EXITS, WAITS], "; rank 2 was terminated; rank 1 had already exited (exit code 0)"),
        ([WAITS, WAITS, EXITS], "; ranks 1, 2 were terminated; rank 3 had already exited (exit code 0)"),
        (["trap 'exit 5' TERM; echo $$; sleep 1000 & wait"], "; rank 1 exited after SIGTERM (exit code 5)"),
    ],
)
def test_the_report_describes_the_other_ranks(launcher, others, text):
    cases = " ".join(f"{rank}) {shell};;" for rank, shell in enumerate(others, 1))
    shell = f"case $RANK in 0) read line; exit 3;; {cases} esac"
    process = launcher.start("-n", str(1 + len(others)), "--prefix", "sh", "-c", shell, stdin=subprocess.PIPE)
    pids = dict(line.split() for line in launcher.lines(process, len(others)))
    for rank, shell in enumerate(others, 1):
        assert shell != EXITS or launcher.watch(int(pids[b"[%d]" % rank]))()
    _, err = process.communicate(b"\n", timeout=30)
    assert process.returncode == 3
    assert err.decode().endswith(f" failed: exit code 3{text}\n")


def test_a_successful_rank_does_not_end_the_others(launcher):
    shell = "if [ $RANK = 1 ]; then echo $$; exit 0; fi; read line; echo $line"
    process = launcher.start("-n", "2", "sh", "-c", shell, stdin=subprocess.PIPE)
    assert launcher.watch(int(launcher.lines(process, 1)[0]))()
    out, err = process.communicate(b"bye\n", timeout=30)
    assert (process.returncode, out, err) == (0, b"bye\n", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_arrives_once_at_each_rank(launcher, number):
    process = launcher.start("-n", "3", launcher.program(LISTENER))
    assert launcher.lines(process, 3) == [b"ready\n"] * 3
    os.killpg(process.pid, number)  # as the terminal does
    assert sorted(launcher.lines(process, 3)) == [f"{number.name} {rank}\n".encode() for rank in range(3)]
    process.send_signal(signal.SIGUSR2)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"")
    assert err.decode() == ("" if number == signal.SIGUSR1 else f"hookline run: ended by {number.name}\n")


def test_ranks_that_die_of_a_signal_give_its_exit_code(launcher):
    process = launcher.start("-n", "2", "sh", "-c", "echo ready; sleep 1000")
    launcher.lines(process, 2)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM


def test_an_ignored_signal_stays_ignored(launcher):
    process = launcher.start("-n", "2", launcher.program(LISTENER), ignored=(signal.SIGHUP,))
    launcher.lines(process, 2)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR2)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_rank_has_time_to_clean_up_after_an_interrupt(launcher):
    # Rank 0 dies at once. Rank 1 already handles its own SIGINT, so the failure of rank 0 must not end it early.
    program = launcher.program(
        "import os, signal, sys\n"
        "try:\n"
        "    print('ready')\n"
        "    signal.pause()\n"
        "except KeyboardInterrupt:\n"
        "    if os.environ['RANK'] == '0': raise\n"
        "    signal.sigtimedwait([signal.SIGTERM], 0.3)\n"
        "    print('clean')\n"
    )
    process = launcher.start("-n", "2", program)
    launcher.lines(process, 2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + signal.SIGINT, b"clean\n")


def test_a_rank_that_does_not_end_after_a_failure_is_killed(launcher):
    failing = "trap 'exit 3' USR1; echo ready; while true; do sleep 1000 & wait; done"
    shell = f"if [ $RANK = 1 ]; then {failing}; fi; trap '' USR1; {STUBBORN}"
    process = launcher.start("-n", "3", "--grace", "0.2", "sh", "-c", shell)
    launcher.lines(process, 3)
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert b"rank 1 (pid " in err
    assert err.endswith(b"killed after the grace period of 0.2 s: rank 0, 2\n")


def test_a_stubborn_rank_is_killed_and_named(launcher):
    process = launcher.start("-n", "2", "--grace", "0.2", "sh", "-c", STUBBORN)
    launcher.lines(process, 2)
    began = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL
    assert time.monotonic() - began >= 0.2
    assert err == b"hookline run: ended by SIGTERM\nkilled after the grace period of 0.2 s: rank 0, 1\n"


def test_a_second_interrupt_kills(launcher):
    process = launcher.start("-n", "2", "--grace", "1000", launcher.program(LISTENER))
    launcher.lines(process, 2)
    process.send_signal(signal.SIGINT)
    launcher.lines(process, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL
    assert err == b"hookline run: ended by SIGINT\nkilled by the second SIGINT: rank 0, 1\n"


@pytest.mark.parametrize("ending", ["exit 0", "exit 1", "sleep 1000"])
def test_child_processes_do_not_outlive_their_rank(launcher, ending):
    shell = f"(trap '' TERM; sleep 1000; true) & echo $!; read line; {ending}"
    process = launcher.start("-n", "1", "--grace", "0.1", "sh", "-c", shell, stdin=subprocess.PIPE)
    ended = launcher.watch(int(launcher.lines(process, 1)[0]))
    process.stdin.write(b"\n")
    process.stdin.flush()
    if ending == "sleep 1000":
        process.terminate()
    process.wait(timeout=30)
    assert ended()


def test_a_daemon_that_holds_the_output_does_not_hold_the_launcher(launcher):
    # The rank exits only after the daemon has left its process group; otherwise the launcher would kill both.
    shell = "setsid sh -c 'echo $$; exec sleep 1000' & read line; exit 0"
    process = launcher.start("-n", "1", "sh", "-c", shell, stdin=subprocess.PIPE)
    daemon = int(launcher.lines(process, 1)[0])
    try:
        process.stdin.write(b"\n")
        assert process.wait(timeout=10) == 0
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_nothing_outlives_a_launcher_that_is_killed(launcher):
    process = launcher.start("-n", "3", "sh", "-c", "sleep 1000 & echo $!; wait")
    grandchildren = [int(line) for line in launcher.lines(process, 3)]
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(children) == 4  # three ranks and the reaper
    (directory,) = launcher.runtime.iterdir()
    ended = [launcher.watch(pid) for pid in grandchildren + children]
    os.killpg(process.pid, signal.SIGKILL)  # the launcher's whole process group
    assert all(wait() for wait in ended)
    assert not directory.exists()


def test_ranks_die_with_the_launcher_even_without_the_reaper(launcher):
    process = launcher.start("-n", "2", "sh", "-c", "echo $$; exec sleep 1000")
    ranks = [int(line) for line in launcher.lines(process, 2)]
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    (reaper,) = set(children) - set(ranks)
    os.kill(reaper, signal.SIGKILL)
    (directory,) = launcher.runtime.iterdir()
    ended = [launcher.watch(pid) for pid in ranks]
    process.kill()
    assert all(wait() for wait in ended)
    directory.rmdir()


def test_a_reader_that_goes_away_ends_the_ranks(launcher):
    process = launcher.start("-n", "2", "yes")
    launcher.lines(process, 10)
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE


def test_a_reader_that_does_not_read_cannot_hold_the_launcher(launcher):
    program = launcher.program(
        "import os, signal\nos.write(1, b'x\\n' * 250_000)\nos.write(2, b'ready\\n')\nsignal.pause()\n"
    )
    process = launcher.start("-n", "1", "--grace", "0.1", program)
    assert process.stderr.readline() == b"ready\n"
    process.terminate()
    assert process.wait(timeout=30) == 128 + signal.SIGTERM


def test_a_slow_reader_loses_nothing_of_a_failure(launcher):
    program = launcher.program("import os, sys\nos.write(1, b'x\\n' * 250_000)\nsys.exit('why')\n")
    process = launcher.start("-n", "1", "--grace", "0", program)
    assert b"why" in process.stderr.readline()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, len(out)) == (1, 500_000)
    assert b"hookline run: rank 0" in err
