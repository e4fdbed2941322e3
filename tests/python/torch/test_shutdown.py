"""Exit of processes with groups: without shutdown, after an error on one rank, by Ctrl-C; never with a crash."""

import os
import signal
import textwrap
import time
from pathlib import Path

import pytest
from torch_ranks import outcomes, start

BEGIN = """
import os, signal, sys, time
import torch, torch.distributed as dist
from checks import RANK, SIZE, init_group
from pathlib import Path
here = Path(os.environ["RESULTS"]).parent
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(BEGIN + textwrap.dedent(text))
    return path


@pytest.mark.parametrize("destroyed", [True, False])
def test_exit_with_and_without_destroying_the_group(tmp_path: Path, destroyed: bool) -> None:
    text = f"""
    import hookline.torch as ht
    init_group("cpu:hookline,cuda:gloo" if {destroyed} else "hookline")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    ht.register_ddp_comm_hook("FP16_COMPRESS", model)
    model(torch.ones(2, 4)).sum().backward()
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    future.then(lambda f: print("called"))
    group = dist.new_group()
    dist.barrier()
    if {destroyed}: dist.destroy_process_group()
    """
    for code, output in outcomes(start(program(tmp_path, text), 2, tmp_path)):
        assert code == 0, output
        assert "leak" not in output, output


@pytest.mark.parametrize("destroyed", [True, False])
def test_a_python_hook_on_a_model_that_outlives_python(tmp_path: Path, destroyed: bool) -> None:
    text = f"""
    import hookline.torch as ht
    init_group("hookline")
    def hook(group, bucket):
        return group.allreduce([bucket.buffer()]).get_future().then(lambda f: f.value()[0] / group.size())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    ht.register_comm_hook(model, ht.group_from_torch(), hook)
    model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    if {destroyed}: dist.destroy_process_group()
    """
    for code, output in outcomes(start(program(tmp_path, text), 2, tmp_path)):
        assert code == 0, output
        assert "leak" not in output, output


def test_torch_tensors_of_our_memory_that_outlive_python(tmp_path: Path) -> None:
    text = """
    import hookline as hl
    (group,) = hl.make_thread_groups(1)
    net = torch.nn.Linear(4, 4)
    ddp = hl.numpy.DataParallel({name: p.detach().numpy() for name, p in net.named_parameters()}, group)
    for name, parameter in net.named_parameters():
        parameter.grad = torch.from_numpy(ddp.gradient(name))
    net(torch.ones(2, 4)).sum().backward()
    """
    ((code, output),) = outcomes(start(program(tmp_path, text), 1, tmp_path))
    assert code == 0, output
    assert "leak" not in output, output


@pytest.mark.parametrize("last", ["", "keep = torch.ones(3); backend.allreduce([keep], dist.AllreduceOptions())"])
def test_a_python_group_of_a_torch_group_at_exit(tmp_path: Path, last: str) -> None:
    text = f"""
    import hookline as hl, hookline.torch as ht
    class Group(hl.ProcessGroup):
        def allreduce(self, tensors, opts=None):
            future = hl.Future()
            future.set_result(None)
            return hl.Work(future)
    group = Group(0, 1)
    backend = ht.group_to_torch_backend(group)
    world = dist.ProcessGroup(dist.HashStore(), 0, 1)
    world._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    x = torch.ones(3)
    work = world.allreduce([x])
    work.wait()
    assert ht.group_from_torch(world) is group
    {last}
    """
    ((code, output),) = outcomes(start(program(tmp_path, text), 1, tmp_path))
    assert code == 0, output
    assert "leak" not in output, output


def test_an_error_on_one_rank_ends_the_others(tmp_path: Path) -> None:
    text = """
    init_group("hookline", 60)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if RANK == 1: raise KeyError("test failure")
    try:
        model(torch.ones(2, 4)).sum().backward()
    except dist.DistBackendError as error:
        assert "rank 1" in str(error), error
        print("got the error")
    """
    started = time.monotonic()
    (first, output), (second, other) = outcomes(start(program(tmp_path, text), 2, tmp_path))
    assert first == 0, output
    assert "got the error" in output
    assert second == 1, other
    assert "test failure" in other
    assert time.monotonic() - started < 55


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    text = """
    init_group("hookline", 100)
    (here / f"ready{RANK}").touch()
    if RANK == 0:
        dist.all_reduce(torch.ones(3))
    else:
        signal.pause()
    """
    processes = start(program(tmp_path, text), 2, tmp_path)
    for rank in range(2):
        deadline = time.monotonic() + 60
        while not (tmp_path / f"ready{rank}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for process in processes:
        os.kill(process.pid, signal.SIGINT)
    for code, output in outcomes(processes, 30):
        assert code in (1, 130, -signal.SIGINT), output
        assert "KeyboardInterrupt" in output
        assert "Fatal" not in output


def test_tensors_of_an_interrupted_call_stay_alive(tmp_path: Path) -> None:
    text = """
    init_group("hookline", 100)
    def ring(*_): raise InterruptedError
    signal.signal(signal.SIGALRM, ring)
    tensor = torch.ones(16 << 20)  # so large that its memory is unmapped immediately
    if RANK == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            dist.all_reduce(tensor)
        except InterruptedError:
            print("rung")
        del tensor
        (here / "rung").touch()
    else:
        while not (here / "rung").exists(): time.sleep(0.05)
        dist.all_reduce(tensor)
        assert (tensor == SIZE).all()
    dist.barrier()
    """
    (first, output), (second, other) = outcomes(start(program(tmp_path, text), 2, tmp_path))
    assert (first, second) == (0, 0), output + other
    assert "rung" in output
