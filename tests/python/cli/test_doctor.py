"""`hookline doctor` and `hookline bench`: limits that are too low, backends that fail, and complete runs."""

import resource
import subprocess
import sys
from dataclasses import replace
from math import inf

import pytest

from hookline import cli
from hookline.cli import self_test
from hookline.cli.limits import MIB, Limits, check_limits, read_limits
from hookline.cli.report import Finding, State, format_bytes, format_duration, summary

HEALTHY = Limits(
    kernel=(6, 1),
    memory=8192 * MIB,
    shared_size=4096 * MIB,
    shared_free=4096 * MIB,
    rendezvous_dir="/run/user/1000",
    rendezvous_free=100 * MIB,
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
    findings = list(check_limits(HEALTHY))
    assert {f.state for f in findings} == {State.OK}
    assert not any(f.fix for f in findings)
    assert summary(findings) == ("all checks passed", 0)


@pytest.mark.parametrize(
    ("change", "state", "text", "fix"),
    [
        ({"kernel": (4, 19)}, State.FAIL, "Linux 4.19", "Linux 5.4"),
        ({"memory": 10 * MIB}, State.FAIL, "memory: 10 MiB", "container's memory limit"),
        ({"memory": 100 * MIB}, State.WARN, "memory: 100 MiB", "larger container"),
        ({"shared_free": 1 * MIB}, State.WARN, "/dev/shm: 1 MiB free of 4 GiB", "--shm-size"),
        ({"rendezvous_free": 100}, State.FAIL, "/run/user/1000, 100 bytes free", "XDG_RUNTIME_DIR"),
        ({"file_size": 100 * MIB}, State.FAIL, "100 MiB; shared memory requires a sparse file", "ulimit -f unlimited"),
        ({"address_space": 1024 * MIB}, State.WARN, "address space: 1 GiB", "ulimit -v unlimited"),
        ({"locked": 0}, State.WARN, "locked memory: 0 bytes", "ulimit -l unlimited"),
        ({"descriptors": 50}, State.FAIL, "open files: 50, sufficient for 0 ranks", "ulimit -n 4096"),
        ({"descriptors": 50, "descriptors_hard": 50}, State.FAIL, "open files: 50", "hard limit of 50, then"),
        ({"descriptors": 80}, State.WARN, "sufficient for 10 ranks", "ulimit -n 4096"),
        ({"quota": 1.5}, State.WARN, "1.5 usable by this process; the CPU quota", "at most 1 ranks"),
        ({"affinity": 1}, State.WARN, "cores: 8, 1 usable by this process", "taskset"),
        ({"processes": 3}, State.FAIL, "processes: 3 more", "--pids-limit"),
    ],
)
def test_each_limit_that_is_too_low(change, state, text, fix):
    low = [f for f in check_limits(replace(HEALTHY, **change)) if f.state is not State.OK]
    assert len(low) == 1
    assert low[0].state is state
    assert text in low[0].text
    assert fix in low[0].fix
    assert summary(low) == (("1 check failed", 1) if state is State.FAIL else ("all checks passed, 1 warning", 0))


def test_large_limits_are_written_out():
    texts = [f.text for f in check_limits(replace(HEALTHY, descriptors=1 << 20, processes=(1 << 22) - 7))]
    assert any("open files: 1048576, " in text for text in texts)
    assert "max processes: 4194297 more" in texts


def test_limits_of_control_groups_apply_to_their_descendants(tmp_path):
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
    assert (found.memory, found.quota, found.processes) == (150 * MIB, 1.5, 7)  # the page cache counts as available
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/a\n")
    (tmp_path / "sys/fs/cgroup/memory/a").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory/a/memory.limit_in_bytes").write_text("1000")
    (tmp_path / "sys/fs/cgroup/memory/a/memory.usage_in_bytes").write_text("400")
    assert read_limits(str(tmp_path)).memory == 600  # cgroup version 1
    (tmp_path / "proc/self/cgroup").write_text("")
    found = read_limits(str(tmp_path))
    assert (found.memory, found.quota, found.processes) == (8000000 * 1024, inf, inf)
    (tmp_path / "proc/meminfo").unlink()
    assert read_limits(str(tmp_path)).memory == inf


def run_python(text):
    return self_test.try_backend("some", [sys.executable, "-c", text])


def test_failures_of_a_backend(monkeypatch):
    assert run_python("print('{\"1 KiB\": 2e-6}')") == Finding(State.OK, "some: allreduce of two ranks: 1 KiB in 2 µs")
    ssh = run_python("import sys; sys.exit('error ../orte/mca/plm/rsh/plm_rsh_component.c(335)')")
    assert (ssh.state, "ssh client" in ssh.fix) == (State.FAIL, True)
    absent = run_python("print('not installed: apt install some')")
    assert (absent.state, absent.text) == (State.NOT_APPLICABLE, "some: apt install some")
    broken = run_python("raise RuntimeError('no way')")
    assert broken.state is State.FAIL
    assert broken.text == "some: allreduce of two ranks failed: RuntimeError: no way"
    assert "-m hookline.cli.self_test some" in broken.fix
    assert run_python("print('of another program')").state is State.FAIL
    assert run_python("").state is State.FAIL
    assert self_test.try_backend("some", ["/no/such/program"]).state is State.FAIL
    assert self_test.try_backend("mpi", ["no-such-mpirun"]).state is State.NOT_APPLICABLE
    monkeypatch.setattr(self_test, "DEADLINE", 0.2)
    hangs = run_python("import time; time.sleep(60)")
    assert hangs.state is State.FAIL
    assert "HOOKLINE_DEBUG=flight_recorder" in hangs.fix


def test_a_wrong_sum_is_detected():
    class Idle(self_test.hl.ProcessGroup):
        def allreduce(self, tensors, opts=None, timeout=None):
            future = self_test.hl.Future()
            future.set_result(None)
            return self_test.hl.Work(future)

    with pytest.raises(AssertionError, match=r"wrong sum at index 0: expected 1, got 0\.0"):
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
    assert f"hookline bench: error: -n {ranks}: expected at least 1 rank" in err


def test_bench_of_a_backend_that_it_cannot_start(capfd):
    assert cli.main(["bench", "--backend", "nccl"]) == 1
    said = capfd.readouterr().err
    assert "hookline bench: unknown backend 'nccl': expected one of shm, " in said
    assert "Traceback" not in said
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "-n", "3", "--backend", "mpi"])
    assert f"Run: mpirun -n 3 {sys.executable} -m hookline.cli.bench mpi\n" in capfd.readouterr().err


def doctor(**limits):
    def lower():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    return subprocess.run(
        [sys.executable, "-m", "hookline", "doctor"], capture_output=True, text=True, timeout=100, preexec_fn=lower
    )


def test_a_complete_run():
    done = doctor()
    assert "two ranks on each backend\n  ok    threads: allreduce of two ranks: 1 KiB in " in done.stdout, (
        done.stdout + done.stderr
    )
    assert "\n  ok    shm: allreduce of two ranks: 1 KiB in " in done.stdout
    assert done.returncode == (1 if "\n  FAIL" in done.stdout else 0)
    assert done.stdout.splitlines()[-1].startswith("all checks passed") == (done.returncode == 0)


def test_a_complete_run_with_a_file_size_limit():
    done = doctor(RLIMIT_FSIZE=64 * MIB)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "fix: ulimit -f unlimited" in done.stdout
    assert "\n  FAIL  shm: allreduce of two ranks failed: " in done.stdout
    assert "\n  ok    threads: " in done.stdout


def test_sizes_and_durations_have_units():
    assert [format_bytes(n) for n in (0, 1000, 1 << 20, 1 << 44, inf)] == [
        "0 bytes",
        "1000 bytes",
        "1 MiB",
        "16 TiB",
        "unlimited",
    ]
    assert [format_duration(t) for t in (2e-6, 0.5e-3, 5.11e-3)] == ["2 µs", "500 µs", "5.11 ms"]
