"""Tests `hookline doctor`: each limit that is too low, backends that fail, and whole runs."""

import resource
import subprocess
import sys
from dataclasses import replace
from math import inf

import pytest

from hookline import cli
from hookline.cli import self_test
from hookline.cli.findings import Finding, State, bytes_text, summary, time_text
from hookline.cli.limits import MIB, Limits, judge, read_limits

HEALTHY = Limits(
    kernel=(6, 1),
    memory=8192 * MIB,
    shared_size=4096 * MIB,
    shared_free=4096 * MIB,
    meeting_place="/run/user/1000",
    meeting_free=100 * MIB,
    file_size=inf,
    address_space=inf,
    locked=8 * MIB,
    descriptors=1024,
    descriptors_hard=4096,
    cores=8,
    affinity=8,
    quota=inf,
    processes=inf,
)


def test_a_healthy_machine_has_nothing_to_fix():
    findings = list(judge(HEALTHY))
    assert {f.state for f in findings} == {State.OK}
    assert not any(f.fix for f in findings)
    assert summary(findings) == ("nothing is wrong", 0)


@pytest.mark.parametrize(
    ("change", "state", "what", "fix"),
    [
        ({"kernel": (4, 19)}, State.WRONG, "Linux 4.19", "Linux 5.4"),
        ({"memory": 10 * MIB}, State.WRONG, "memory: 10 MiB", "container's limit"),
        ({"memory": 100 * MIB}, State.LOOK, "memory: 100 MiB", "larger container"),
        ({"shared_free": 1 * MIB}, State.LOOK, "/dev/shm: 1 MiB free of 4 GiB", "--shm-size"),
        ({"meeting_free": 100}, State.WRONG, "/run/user/1000, 100 bytes free", "XDG_RUNTIME_DIR"),
        ({"file_size": 100 * MIB}, State.WRONG, "100 MiB; shared memory is a file", "ulimit -f unlimited"),
        ({"address_space": 1024 * MIB}, State.LOOK, "maps: 1 GiB", "ulimit -v unlimited"),
        ({"locked": 0}, State.LOOK, "locked memory: 0 bytes", "ulimit -l unlimited"),
        ({"descriptors": 50}, State.WRONG, "open files: 50, enough for 0 ranks", "ulimit -n 4096"),
        ({"descriptors": 50, "descriptors_hard": 50}, State.WRONG, "open files: 50", "hard limit, which is 50; then"),
        ({"descriptors": 80}, State.LOOK, "enough for 10 ranks", "ulimit -n 4096"),
        ({"quota": 1.5}, State.LOOK, "may use 1.5; its control group", "at most 1 ranks"),
        ({"affinity": 1}, State.LOOK, "cores: 8, of which this process may use 1", "taskset"),
        ({"processes": 3}, State.WRONG, "processes: 3 more", "--pids-limit"),
    ],
)
def test_each_limit_that_is_too_low(change, state, what, fix):
    wrong = [f for f in judge(replace(HEALTHY, **change)) if f.state is not State.OK]
    assert len(wrong) == 1
    assert wrong[0].state is state
    assert what in wrong[0].what
    assert fix in wrong[0].fix
    assert summary(wrong)[1] == (1 if state is State.WRONG else 0)


def test_large_limits_are_written_out():
    texts = [f.what for f in judge(replace(HEALTHY, descriptors=1 << 20, processes=(1 << 22) - 7))]
    assert any("open files: 1048576, " in text for text in texts)
    assert "processes: 4194297 more" in texts


def test_limits_of_control_groups_hold_for_what_is_below_them(tmp_path):
    files = {
        "proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n",
        "proc/self/cgroup": "1:name=systemd:/old\n0::/a/b\n",
        "sys/fs/cgroup/a/memory.max": str(512 * MIB),
        "sys/fs/cgroup/a/memory.current": str(412 * MIB),
        "sys/fs/cgroup/a/memory.stat": f"anon {312 * MIB}\ninactive_file {50 * MIB}\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/a/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/b/pids.max": "20\n",
        "sys/fs/cgroup/a/b/pids.current": "13\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = read_limits(str(tmp_path))
    assert (found.memory, found.quota, found.processes) == (150 * MIB, 1.5, 7)  # files in the cache can be had
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/a\n")
    (tmp_path / "sys/fs/cgroup/memory/a").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory/a/memory.limit_in_bytes").write_text("1000")
    (tmp_path / "sys/fs/cgroup/memory/a/memory.usage_in_bytes").write_text("400")
    assert read_limits(str(tmp_path)).memory == 600  # version 1
    (tmp_path / "proc/self/cgroup").write_text("")
    found = read_limits(str(tmp_path))
    assert (found.memory, found.quota, found.processes) == (8000000 * 1024, inf, inf)
    (tmp_path / "proc/meminfo").unlink()
    assert read_limits(str(tmp_path)).memory == inf


def run_python(text):
    return self_test.try_backend("some", [sys.executable, "-c", text])


def test_what_a_backend_may_do_wrong(monkeypatch):
    assert run_python("print('{\"1 KiB\": 2e-6}')") == Finding(State.OK, "some: two ranks add up: 1 KiB in 2 µs")
    ssh = run_python("import sys; sys.exit('error ../orte/mca/plm/rsh/plm_rsh_component.c(335)')")
    assert (ssh.state, "ssh client" in ssh.fix) == (State.WRONG, True)
    absent = run_python("print('not installed: apt install some')")
    assert (absent.state, absent.what) == (State.ABSENT, "some: apt install some")
    broken = run_python("raise RuntimeError('no way')")
    assert broken.state is State.WRONG
    assert broken.what == "some: two ranks cannot add up: RuntimeError: no way"
    assert "-m hookline.cli.self_test some" in broken.fix
    assert run_python("print('of another program')").state is State.WRONG
    assert run_python("").state is State.WRONG
    assert self_test.try_backend("some", ["/no/such/program"]).state is State.WRONG
    assert self_test.try_backend("mpi", ["no-such-mpirun"]).state is State.ABSENT
    monkeypatch.setattr(self_test, "DEADLINE", 0.2)
    hangs = run_python("import time; time.sleep(60)")
    assert hangs.state is State.WRONG
    assert "HOOKLINE_DEBUG=recorded" in hangs.fix


def test_a_sum_that_is_wrong_is_found():
    class Idle(self_test.hl.ProcessGroup):
        def allreduce(self, tensors, opts=None, timeout=None):
            future = self_test.hl.Future()
            future.set_result(None)
            return self_test.hl.Work(future)

    with pytest.raises(AssertionError, match=r"value 0 of the sum is 0\.0, not 1"):
        self_test.measure(Idle(0, 2))


def test_bench_prints_a_line_for_each_size(capfd):
    assert cli.main(["bench", "-n", "3"]) == 0
    title, *lines = capfd.readouterr().out.splitlines()
    assert title == "allreduce of float32, 3 ranks, shm"
    assert [line.split()[:2] for line in lines] == [["1", "KiB"], ["64", "KiB"], ["1", "MiB"], ["25", "MiB"]]
    assert all(line.endswith("GB/s") for line in lines)


@pytest.mark.parametrize("ranks", ["0", "-1"])
def test_bench_without_ranks_prints_its_own_usage(capfd, ranks):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "-n", ranks])
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("usage: hookline bench ")
    assert f"hookline bench: error: -n {ranks}: at least one rank is needed" in err


def test_bench_of_a_backend_that_it_cannot_start(capfd):
    assert cli.main(["bench", "--backend", "nccl"]) == 1
    said = capfd.readouterr().err
    assert "hookline bench: no backend is called 'nccl' here; there are: shm, " in said
    assert "Traceback" not in said
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "-n", "3", "--backend", "mpi"])
    assert f": mpirun -n 3 {sys.executable} -m hookline.cli.bench mpi\n" in capfd.readouterr().err


def doctor(**limits):
    def lower():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    return subprocess.run(
        [sys.executable, "-m", "hookline", "doctor"], capture_output=True, text=True, timeout=100, preexec_fn=lower
    )


def test_a_whole_run():
    done = doctor()
    assert "two ranks on each backend\n  ok    threads: two ranks add up: 1 KiB in " in done.stdout, (
        done.stdout + done.stderr
    )
    assert "\n  ok    shm: two ranks add up: 1 KiB in " in done.stdout
    assert done.returncode == (1 if "\n  WRONG" in done.stdout else 0)
    assert done.stdout.splitlines()[-1].startswith("nothing is wrong") == (done.returncode == 0)


def test_a_whole_run_where_files_may_not_be_large():
    done = doctor(RLIMIT_FSIZE=64 * MIB)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "fix: ulimit -f unlimited" in done.stdout
    assert "\n  WRONG shm: two ranks cannot add up: " in done.stdout
    assert "\n  ok    threads: " in done.stdout


def test_sizes_and_times_as_people_read_them():
    assert [bytes_text(n) for n in (0, 1000, 1 << 20, 1 << 44, inf)] == [
        "0 bytes",
        "1000 bytes",
        "1 MiB",
        "16 TiB",
        "unlimited",
    ]
    assert [time_text(t) for t in (2e-6, 0.5e-3, 5.11e-3)] == ["2 µs", "500 µs", "5.11 ms"]
