"""`hookline debug`: the report on the flight recorder dumps of all ranks."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import hookline as hl
from hookline.cli import main

X = np.ones(4, np.float32)


def groups(tmp_path: Path, size: int = 2) -> list[hl.ProcessGroup]:
    return [
        hl.with_flight_recorder(g, directory=str(tmp_path), name="g") for g in hl.make_thread_groups(size, timeout=30)
    ]


def report(tmp_path: Path, capsys: pytest.CaptureFixture[str], all_groups: list[hl.ProcessGroup]) -> str:
    for group in all_groups:
        hl.dump_flight_records(group)
    assert main(["debug", str(tmp_path)]) == 0
    return capsys.readouterr().out


def test_completed_operations(tmp_path, capsys):
    pair = groups(tmp_path)
    works = [g.allreduce([X.copy()]) for g in pair]
    for work in works:
        work.wait()
    out = report(tmp_path, capsys, pair)
    assert "g (threads, 2 ranks)" in out
    assert "all ranks completed the same operations; none are pending" in out


def test_a_rank_that_is_behind(tmp_path, capsys):
    trio = groups(tmp_path, 3)
    works = [g.barrier() for g in trio]
    for work in works:
        work.wait()
    works = [trio[r].allreduce([X.copy()], op=hl.ReduceOp.MAX) for r in (0, 2)]
    out = report(tmp_path, capsys, trio)
    assert "rank 1 is behind: rank 1 has not called operation 2 in lane 0, allreduce (max) of float32[4]" in out
    assert "; ranks 0, 2 have been waiting in it since" in out


def test_a_rank_inside_an_operation_and_a_missing_dump(tmp_path, capsys):
    pair = groups(tmp_path)
    works = [pair[0].recv([X.copy()], 1), pair[0].barrier()]
    hl.dump_flight_records(pair[0])
    (tmp_path / "g.rank1.json").unlink(missing_ok=True)
    assert main(["debug", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "rank 1: no dump found" in out
    assert "rank 0 is in operation 1 in lane 0, barrier, since" in out
    assert "rank 0 has been waiting in recv of float32[4], peer 1 since" in out
    del works


def test_mismatched_operations(tmp_path, capsys):
    pair = groups(tmp_path)
    works = [pair[0].allreduce([X.copy()]), pair[1].broadcast([X.copy()], root=1)]
    for work in works:
        with pytest.raises(hl.Mismatch):
            work.wait()
    out = report(tmp_path, capsys, pair)
    assert "mismatch: operation 1 in lane 0 differs between ranks:" in out
    assert "allreduce of float32[4] on rank 0" in out
    assert "broadcast of float32[4], root 1 on rank 1" in out
    assert "rank 0: allreduce of float32[4] failed at" in out


def test_bad_input(tmp_path, capsys):
    assert main(["debug", str(tmp_path)]) == 2
    assert "no dumps (*.rank*.json) found in" in capsys.readouterr().err
    assert main(["debug", str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    for text in ("{", "[]", '{"version": 2}', '{"version": 1}', '{"version": 1, "operations": [1]}'):
        (tmp_path / "x.rank0.json").write_text(text)
        assert main(["debug", str(tmp_path)]) == 2
        assert "is not a flight recorder dump" in capsys.readouterr().err


GOOD = {
    "version": 1,
    "group": "g",
    "backend": "shm",
    "rank": 0,
    "size": 2,
    "time": 1.0,
    "operations": [
        {"lane": 0, "in_lane": 1, "op": "barrier", "state": "running", "started": 0.5, "finished": None, "tensors": 0}
    ],
}


def test_deeply_nested_json_is_an_error_naming_the_file(tmp_path, capsys):
    for text in ("[" * 200_000, '{"version": 1, "group": ' + '{"a":' * 200_000):
        (tmp_path / "x.rank0.json").write_text(text)
        assert main(["debug", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert f"{tmp_path}/x.rank0.json is not a flight recorder dump: nested too deeply" in err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rank", 2),
        ("rank", -1),
        ("rank", 1e999),
        ("rank", True),
        ("size", 0),
        ("size", 2**40),
        ("time", float("nan")),
        ("time", 1e300),
        ("group", ["g"]),
        ("operations", {"lane": 0}),
        ("operations[].lane", 2**40),
        ("operations[].in_lane", 0),
        ("operations[].in_lane", 10**100),
        ("operations[].started", 1e999),
        ("operations[].finished", "now"),
        ("operations[].shape", [1e999]),
        ("operations[].shape", 3),
        ("operations[].dtype", {"a": 1}),
        ("operations[].root", "0"),
        ("operations[].tensors", -1),
        ("operations[].error", 5),
    ],
)
def test_a_field_of_the_wrong_type_or_range_is_named(tmp_path, capsys, field, value):
    data = json.loads(json.dumps(GOOD))
    (tmp_path / "x.rank0.json").write_text(json.dumps(data))
    assert main(["debug", str(tmp_path)]) == 0
    _, _, name = field.rpartition("[].")
    (data["operations"][0] if "[]" in field else data)[name] = value
    (tmp_path / "x.rank0.json").write_text(json.dumps(data))
    capsys.readouterr()
    assert main(["debug", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "x.rank0.json is not a flight recorder dump: " in err
    assert f"'{name}'" in err


def test_a_gap_of_any_length_between_the_numbers_of_two_ranks(tmp_path, capsys):
    data = json.loads(json.dumps(GOOD))
    (tmp_path / "x.rank0.json").write_text(json.dumps(data))
    data["rank"], data["operations"][0]["in_lane"] = 1, 2**53
    (tmp_path / "x.rank1.json").write_text(json.dumps(data))
    assert main(["debug", str(tmp_path)]) == 0
    assert "rank 0 is behind" in capsys.readouterr().out


PROGRAM = """
    import sys, time, hookline as hl, numpy as np
    group = hl.init_process_group(timeout=30)
    group.allreduce([np.ones(3, np.float32)]).wait()
    if group.rank() == 0:
        work = group.allreduce([np.ones(5, np.float32)])
    print("ready", flush=True)
    time.sleep(60)
"""


def test_the_environment_turns_it_on_and_a_signal_dumps(tmp_path):
    directory = tmp_path / "dumps"
    environment = {
        **os.environ,
        "HOOKLINE_DEBUG": "collectives,flight_recorder",
        "HOOKLINE_DEBUG_DIR": str(directory),
    }
    store = tmp_path / "store"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("timeout=30", f"'shm', 'file://{store}', {r}, 2")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "ready\n"
        for rank in ranks:
            rank.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while len(list(directory.glob("*.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        done = subprocess.run(
            [sys.executable, "-m", "hookline", "debug", str(directory)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "rank 1 is behind: rank 1 has not called operation 2 in lane 0, allreduce of float32[5]" in done.stdout
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_an_unknown_name_in_the_environment(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"import hookline as hl; hl.init_process_group('shm', 'file://{tmp_path}/s', 0, 1)"],
        env={**os.environ, "HOOKLINE_DEBUG": "checkd"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "unknown name 'checkd'; expected collectives, flight_recorder, nan" in done.stderr
