"""Properties and methods that Python groups can override: names, timeouts, sequence numbers, subgroups, coalescing."""

import datetime

import numpy as np
import pytest
import torch

import hookline as hl
from hookline import _core

forward_through_cpp = _core._probe.forward_through_cpp


def done():
    future = hl.Future()
    future.set_result(None)
    return hl.Work(future)


class Own(hl.ProcessGroup):
    """Overrides every property and method by hookline's name."""

    def __init__(self):
        super().__init__(1, 4)
        self.calls = []

    def name(self):
        return "own name"

    def description(self):
        return "own description"

    @property
    def timeout(self):
        return datetime.timedelta(seconds=0.2)

    @property
    def sequence_number(self):
        return 77

    def start_coalescing(self):
        self.calls.append("start")

    def end_coalescing(self):
        self.calls.append("end")
        return done()

    def split(self, color, key):
        self.calls.append(("split", color, key))
        return Own() if color >= 0 else None

    def new_group(self, ranks):
        self.calls.append(("new_group", ranks))
        return Own()


class OwnTorch(hl.ProcessGroup):
    """Overrides every property and method by torch's name."""

    def __init__(self):
        super().__init__(1, 4)
        self.calls = []

    @property
    def group_name(self):
        return "own name"

    @property
    def group_desc(self):
        return "own description"

    def _get_sequence_number_for_group(self):
        return 77

    def _start_coalescing(self, device):
        self.calls.append(("start", device))

    def _end_coalescing(self, device):
        self.calls.append(("end", device))
        return done()

    def split_group(self, ranks, timeout, opts, group_name, group_desc):
        self.calls.append(("split_group", ranks, timeout, opts, group_name, group_desc))
        return OwnTorch()


@pytest.mark.parametrize("cls", [Own, OwnTorch])
def test_names_and_numbers(cls):
    group = cls()
    for g in (forward_through_cpp(group), group):
        assert (g.name(), g.group_name) == ("own name", "own name")
        assert (g.description(), g.group_desc) == ("own description", "own description")
        assert (g.sequence_number, g._get_sequence_number_for_group()) == (77, 77)
        g._set_sequence_number_for_group()


@pytest.mark.parametrize("method", ["backend_name", "getBackendName"])
def test_the_name_of_the_backend_under_either_name(method):
    base = getattr(hl.ProcessGroup, method)
    group = type("Named", (hl.ProcessGroup,), {method: lambda self: base(self) + "!"})(0, 1)
    for g in (forward_through_cpp(group), group):
        assert (g.backend_name(), g.getBackendName(), g.name()) == ("Named!",) * 3


def test_coalescing():
    for group, names in ((Own(), ("start", "end")), (OwnTorch(), (("start", torch.device("cpu")),) * 2)):
        for g in (forward_through_cpp(group), group):
            for prefix in ("", "_"):
                if g is group and not hasattr(type(g), f"{prefix}start_coalescing"):
                    continue
                group.calls.clear()
                own = f"{prefix}start_coalescing" in vars(type(group))
                arguments = (torch.device("cpu"),) if g is group and own and prefix else ()
                getattr(g, f"{prefix}start_coalescing")(*arguments)
                work = getattr(g, f"{prefix}end_coalescing")(*arguments)
                assert work.wait()
                assert len(group.calls) == 2
                assert group.calls[0] == names[0]


def test_coalescing_of_a_native_group(ranks):
    def body(group):
        x, y = np.full(4, group.rank() + 1.0), np.ones(3)
        group._start_coalescing(torch.device("cpu"))
        group.allreduce([x])
        group.allreduce([y])
        work = group._end_coalescing(torch.device("cpu"))
        assert work.wait()
        assert work.get_future().wait(20) == []
        with pytest.raises(hl.InvalidArgument, match="coalescing is not active"):
            group.end_coalescing()
        return x[0], y[0]

    assert ranks(2, body) == [(3, 2)] * 2


def test_subgroups():
    own, of_torch = Own(), OwnTorch()
    assert forward_through_cpp(own).split(3, 5).group_name == "own name"
    assert own.calls == [("split", 3, 5)]
    assert forward_through_cpp(own).split(-1) is None
    assert forward_through_cpp(own).new_group([0, 1]).name() == "own name"
    assert own.calls[-1] == ("new_group", [0, 1])
    for g in (forward_through_cpp(of_torch), of_torch):
        assert g.new_group([1]).name() == "own name"
        assert of_torch.calls[-1] == ("split_group", [1], None, None, None, None)
    assert own.split_group([2]).name() == "own name"
    assert own.calls[-1] == ("new_group", [2])


def test_a_timeout_of_its_own_counts_for_its_operations():
    class Never(Own):
        def barrier(self, opts=None):
            return hl.Work(hl.Future())

    group = Never()
    native = forward_through_cpp(group)
    assert native.timeout == datetime.timedelta(seconds=0.2)
    with pytest.raises(hl.Timeout, match=r"Never\.barrier"):
        native.barrier().wait()


def test_super_calls_the_base_class():
    class Super(hl.ProcessGroup):
        def getBackendName(self):  # noqa: N802
            return "super"

        def name(self):
            return super().name() + "!"

        def description(self):
            return super().description() + "!"

        @property
        def sequence_number(self):
            return super().sequence_number + 5

        @property
        def timeout(self):
            return super().timeout * 2

        def split(self, color, key):
            return super().split(color, key)

        def new_group(self, ranks):
            return super().new_group(ranks)

        def start_coalescing(self):
            super().start_coalescing()

        def _allgather_base(self, output, given, opts=None):
            output[:] = given
            return done()

    group = Super(0, 1)
    group.set_timeout(3)
    for g in (forward_through_cpp(group), group):
        assert g.name() == "super!"
        assert g.description() == "super group, rank 0 of 1!"
        assert g.sequence_number >= 5
        assert g.timeout == datetime.timedelta(seconds=6)
        with pytest.raises(hl.Unsupported, match=r"Super has no new_group in its base"):
            g.new_group([0])
        with pytest.raises(hl.Unsupported, match=r"Super has no new_group in its base"):
            g.split(0, 0)  # the base implementation uses allgather and new_group
        with pytest.raises(hl.Unsupported, match=r"Super has no start_coalescing in its base"):
            g.start_coalescing()


def test_wrong_results_of_properties():
    class Wrong(hl.ProcessGroup):
        def name(self):
            return 5

        def description(self, extra):
            return "never"

        @property
        def group_desc(self):
            return "never"

        @property
        def sequence_number(self):
            return "many"

        def end_coalescing(self):
            return None

        def split(self, color):
            return None

        def new_group(self, ranks):
            return 5

    class WrongTime(hl.ProcessGroup):
        @property
        def timeout(self):
            return "long"

    native = forward_through_cpp(Wrong(0, 1))
    with pytest.raises(TypeError, match=r"Wrong.name\(\): expected a str as the result, got int"):
        native.name()
    with pytest.raises(TypeError, match=r"Wrong.description\(extra\) cannot be called as description\(\)"):
        native.description()
    with pytest.raises(TypeError, match=r"Wrong.sequence_number\(\): expected a number as the result, got str"):
        _ = native.sequence_number
    with pytest.raises(
        TypeError, match=r"WrongTime.timeout\(\): expected seconds or a timedelta as the result, got str"
    ):
        _ = forward_through_cpp(WrongTime(0, 1)).timeout
    with pytest.raises(TypeError, match=r"Wrong.end_coalescing\(\): expected a hookline.Work as the result, got None"):
        native.end_coalescing()
    with pytest.raises(TypeError, match=r"Wrong.split\(color\) cannot be called as split\(color, key\)"):
        native.split(1)
    with pytest.raises(
        TypeError, match=r"Wrong.new_group\(\): expected a hookline.ProcessGroup or None as the result, got int"
    ):
        native.new_group([0])
    with pytest.raises(hl.Unsupported, match="Wrong has no start_coalescing; define start_coalescing in the class"):
        native.start_coalescing()
