"""User-defined hooks by name: register_hook in Python, and hook libraries."""

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from training_steps import expect, gradients, model, step

import hookline as hl
from hookline import _hook_state, cli

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("HOOKLINE_BUILD", ROOT / "build/dev"))


def mean(group, bucket):
    return group.allreduce([bucket.buffer()], op="avg").get_future().then(lambda f: f.value()[0])


def scaled_mean(group, k: float = 1, power: int = 1, twice: bool = False, how: Literal["up", "down"] = "up"):
    """The mean times k to some power.

    Not part of the description.
    """
    factor = k**power * (2 if twice else 1)
    factor = factor if how == "up" else 1 / factor

    def hook(state, bucket):
        assert state is group
        return mean(state, bucket).then(lambda f: (f.value() * factor).astype(f.value().dtype))

    return hook


class TopK:
    """Sends the fraction k of largest gradients of each rank."""

    def __init__(self, group, k=0.25, limit: "int | None" = None):
        self.group, self.k, self.limit = group, k, limit
        self.steps = 0

    def __call__(self, state, bucket):
        self.steps += 1
        values = bucket.buffer()
        count = max(1, int(len(values) * self.k))
        if self.limit is not None:
            count = min(count, self.limit)
        decoded = np.zeros_like(values)
        largest = np.argsort(-np.abs(values))[:count]
        decoded[largest] = values[largest]
        bucket.set_contribution(decoded)
        return state.allreduce([decoded], op="avg").get_future().then(lambda f: f.value()[0])

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state_dict):
        self.steps = state_dict["steps"]


@pytest.fixture(scope="module", autouse=True)
def _registered():
    hl.register_hook("scaled_mean", scaled_mean)
    hl.register_hook("top_k", TopK, reports_contribution=True)
    hl.register_hook("half_mean", lambda group: "allreduce | fp16", description="another hook's text")
    hl.register_hook("made_mean", lambda group: hl.make_hook(mean, group))
    hl.register_hook("strange", lambda group, what="None": {"None": None, "3": 3, "one": lambda state: None}[what])
    yield
    for name in ("scaled_mean", "top_k", "half_mean", "made_mean", "strange"):
        hl.unregister_hook(name)


def test_texts_with_options_and_wrappers(ranks):
    def body(group):
        params = model()
        for text, expected in {
            "scaled_mean": 1.5,
            "scaled_mean(k=2, power=2)": 6,
            "scaled_mean(k=0.5, how=down) | compare": 3,
            "scaled_mean(twice=true) | fp16 | log": 3,
            "half_mean": 1.5,
            "made_mean | where(dims=1)": 1.5,
        }.items():
            ddp = hl.numpy.DataParallel(params, group, hook=text)
            grads = gradients(params, group.rank())
            step(ddp, grads)
            expect(grads, expected)
        assert hl.make_hook("scaled_mean(k=2) | compare", group).name == "scaled_mean | compare"

    ranks(2, body)


def test_stats_count_the_bytes_of_a_function(ranks):
    def body(group):
        ddp = hl.numpy.DataParallel({"w": np.zeros(1000, np.float32)}, group, hook="scaled_mean | compare")
        ddp.ready("w", np.ones(1000, np.float32))
        ddp.finish()
        (cost,) = ddp.stats()["hook_stats"]
        assert (cost["values"], cost["bytes_sent"], cost["ratio"], cost["relative_error"]) == (1000, 4000, 1, 0)
        hook = hl.make_hook("top_k | error_feedback", group)
        hook(None, hl.GradBucket(np.arange(100, dtype=np.float32))).wait()
        (cost,) = hook.stats()  # outside a reducer
        assert cost["bytes_sent"] == 400
        assert cost["residual_norm"] == pytest.approx(np.linalg.norm(np.arange(75)))

    ranks(2, body)


def test_state_is_saved_and_errors_are_fed_back(ranks):
    def body(group):
        def run(hook):
            gradient = np.array([1, 2, 3, 4], np.float32)
            ddp = hl.numpy.DataParallel({"w": np.zeros(4, np.float32)}, group, hook=hook)
            ddp.ready("w", gradient)
            ddp.finish()
            return gradient.tolist()

        own = hl.make_hook("top_k(k=0.5) | error_feedback", group)
        assert run(own) == [0, 0, 3, 4]
        saved = own.state_dict()
        assert run(own) == [0, 4, 0, 4]
        again = hl.make_hook("top_k(k=0.5) | error_feedback", group)
        again.load_state_dict(saved)
        assert run(again) == [0, 4, 0, 4]
        assert again.state_dict() == own.state_dict()
        with pytest.raises(hl.InvalidArgument, match=r"does not report"):
            hl.make_hook("scaled_mean | error_feedback", group)
        with pytest.raises(hl.InvalidArgument, match=r"of the hook top_k \| error_feedback"):
            hl.make_hook("scaled_mean", group).load_state_dict(saved)

    ranks(1, body)


@pytest.mark.parametrize("kind", ["text", "hook", "wrapped", "overlapped", "returned"])
def test_the_garbage_collector_sees_hooks_inside_hooks(ranks, kind):
    """The hook refers to its model and to itself."""

    def body(group):
        class Mean:
            def __init__(self, group):
                owners.append(self)

            def __call__(self, state, bucket):
                return mean(state, bucket)

        def made():
            if kind in ("text", "returned"):
                hl.register_hook(name, Mean if kind == "text" else lambda group: hl.make_hook(Mean(group), group))
                return f"{name} | compare"
            hook = hl.make_hook(Mean(group), group)
            if kind == "overlapped":
                return hl.overlap(hook, "sgd(lr=0.1)")
            return hook if kind == "hook" else hook | "compare" | "log"

        name, owners = f"of_the_collector_{kind}", []
        hook = made()
        ddp = hl.numpy.DataParallel({"w": np.zeros(4, np.float32)}, group, hook=hook)
        ddp.ready("w", np.ones(4, np.float32))
        ddp.finish()
        owners[0].ddp, owners[0].hook = ddp, hook
        left = [weakref.ref(owners[0]), weakref.ref(ddp)]
        gc.collect()
        assert all(one() for one in left)
        ddp.ready("w", np.ones(4, np.float32))
        ddp.finish()  # it still works
        del ddp, hook
        owners.clear()
        gc.collect()
        if kind in ("text", "returned"):
            hl.unregister_hook(name)
        assert not any(one() for one in left)

    ranks(1, body)


class Everything:
    """A hook with state of every supported type."""

    def __init__(self, state):
        self.state = state

    def __call__(self, state, bucket):
        return mean(state, bucket)

    def state_dict(self):
        return self.state

    def load_state_dict(self, state_dict):
        self.state = state_dict


def test_state_of_every_supported_type():
    (group,) = hl.make_thread_groups(1)
    state = {
        "scalars": [None, True, 3, 2.5, "text", b"bytes"],
        "tuple": (1, (2,)),
        7: {"w": np.arange(6, dtype=np.int16).reshape(2, 3), "scalar": np.float32(0.5), "zero": np.array(4.0)},
        "torch": torch.full((2, 2), 3, dtype=torch.bfloat16),
    }
    saved = hl.make_hook(Everything(state), group).state_dict()
    again = Everything(None)
    hl.make_hook(again, group).load_state_dict(saved)
    assert list(again.state) == list(state)
    assert again.state["scalars"] == state["scalars"]
    assert again.state["tuple"] == state["tuple"]
    assert again.state[7]["w"].dtype == np.int16
    assert np.array_equal(again.state[7]["w"], state[7]["w"])
    assert again.state[7]["scalar"] == 0.5
    assert again.state[7]["zero"].shape == ()
    assert again.state["torch"].dtype == torch.bfloat16
    assert torch.equal(again.state["torch"], state["torch"])
    with pytest.raises(hl.InvalidArgument, match=r"got builtins\.object"):
        hl.make_hook(Everything({"x": object()}), group).state_dict()
    with pytest.raises(hl.InvalidArgument, match=r"state_dict\(\): expected a dict, got builtins\.bytes"):
        hl.make_hook(Everything(b""), group).state_dict()


@pytest.mark.parametrize(
    "broken", [b"", b"\x04" + bytes(7) + b"nope", b"\x1a" + bytes(7) + b'{"kind":"bytes","count":3}']
)
def test_corrupt_state_is_rejected(broken):
    with pytest.raises(hl.InvalidArgument, match="the state of this hook is corrupt"):
        _hook_state.decode(broken)


def test_options_are_listed_without_making_a_hook(capsys):
    assert hl.hook_options("scaled_mean") == {
        "k": ("1", "a number"),
        "power": ("1", "an integer"),
        "twice": ("false", "true or false"),
        "how": ("up", "one of up, down"),
    }
    assert hl.hook_options("top_k") == {"k": ("0.25", "a number"), "limit": ("", "an integer")}
    assert hl.hook_options("strange") == {"what": ("None", "a string")}
    assert hl.registered_hooks()["scaled_mean"] == "The mean times k to some power."
    assert hl.registered_hooks(base_only=True)["half_mean"] == "another hook's text"
    assert cli.main(["hooks", "top_k"]) == 0
    out = capsys.readouterr().out
    assert "top_k(k=0.25, limit=…)\n    Sends the fraction k of largest gradients of each rank." in out
    assert "    k: a number (default: 0.25)" in out


def test_error_messages(ranks):
    def body(group):
        for text, message in {
            "scaled_mean(q=1)": "scaled_mean has no option q; it has: k, power, twice, how",
            "scaled_mean(k=much)": "option k: expected a number, got 'much'",
            "scaled_mean(how=left)": "option how: expected one of up, down, got 'left'",
            "top_k(limit=x)": "option limit: expected an integer, got 'x'",
            "strange": "hook strange: its factory .* returned builtins.NoneType: expected a function",
            "strange(what=3)": r"returned builtins.int: expected a function hook\(state, bucket\)",
            "int8 | scaled_mean": "scaled_mean cannot be wrapped around another hook",
        }.items():
            with pytest.raises(hl.InvalidArgument, match=message):
                hl.make_hook(text, group)
        with pytest.raises(TypeError, match="must take two arguments, state and bucket"):
            hl.make_hook("strange(what=one)", group)
        with pytest.raises(KeyError, match="else"):  # exceptions of a factory propagate
            hl.make_hook("strange(what=else)", group)

    ranks(1, body)


def test_invalid_registrations():
    for name in ("int8", "scaled_mean"):
        with pytest.raises(hl.InvalidArgument, match=f"the hook {name} is already registered"):
            hl.register_hook(name, scaled_mean)
    for name in ("my hook", "", "3d", "a|b"):
        with pytest.raises(hl.InvalidArgument, match="is not an identifier: expected letters"):
            hl.register_hook(name, scaled_mean)
    with pytest.raises(TypeError, match=r"expected a callable factory, got builtins\.str"):
        hl.register_hook("mine", "int8")
    for factory, message in {
        lambda: None: "expected the group as the first parameter",
        lambda group, k: None: "parameter k cannot be an option",
        lambda group, *k: None: r"parameter \*k cannot be an option",
        lambda group, **k: None: r"parameter \*\*k cannot be an option",
        lambda group, k=None: None: "type of option k=None is not supported",
        lambda group, k=(1, 2): None: r"type of option k=\(1, 2\) is not supported",
    }.items():
        with pytest.raises(hl.InvalidArgument, match=message):
            hl.register_hook("mine", factory)
    assert "mine" not in hl.registered_hooks()
    for name in ("mine", "int8"):
        with pytest.raises(hl.InvalidArgument, match=f"no hook was registered under the name '{name}'"):
            hl.unregister_hook(name)


def run(*arguments, folder=None, **environment):
    result = subprocess.run(
        [sys.executable, "-m", "hookline", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


def test_the_command_imports_modules(tmp_path):
    (tmp_path / "my_hooks.py").write_text(
        textwrap.dedent("""
        import hookline as hl

        def make(group, k=0.01):
            '''Does little.'''

        hl.register_hook("mine", make)
        """)
    )
    code, out, _ = run("hooks", "--import", "my_hooks", folder=tmp_path)
    assert code == 0
    assert "mine(k=0.01)\n    Does little.\n" in out
    assert "int8(" in out
    assert run("hooks", "mine", "--import", "my_hooks", folder=tmp_path)[1].startswith("mine(k=0.01)")
    code, _, errors = run("hooks", "--import", "nowhere", folder=tmp_path)
    assert (code, errors) == (1, "hookline hooks: No module named 'nowhere'\n")


def test_a_library_of_hooks(tmp_path):
    """The hook library built from examples/hooks/signs.cpp."""
    found = {"HOOKLINE_HOOK_PATH": str(BUILD / "examples")}
    code, out, errors = run("hooks", "signs", **found)
    assert code == 0, errors
    assert out.startswith("signs(scale=1)\n    sends the signs of the gradients and their mean magnitude\n")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import numpy as np
        import hookline as hl

        group = hl.init_process_group()
        for text in ("signs", "signs(scale=1) | error_feedback | compare"):
            ddp = hl.numpy.DataParallel({"w": np.zeros(4, np.float32)}, group, hook=text)
            total = np.zeros(4)
            for step in range(200):
                gradient = np.array([1, -1, 0.5, 3], np.float32) + 0.25 * group.rank()
                ddp.ready("w", gradient)
                ddp.finish()
                total += gradient
            if "feedback" in text:
                np.testing.assert_allclose(total / 200, np.array([1, -1, 0.5, 3]) + 0.125, atol=0.1)
            else:
                assert abs(total[1] / 200 + 1.375 - 0.03125) < 0.2, total
        print("through")
        """)
    )
    code, out, errors = run("run", "-n", "2", str(program), **found)
    assert (code, out.count("through")) == (0, 2), errors
    (tmp_path / "libhookline_hook_text.so").write_text("not a library")
    code, _, errors = run("hooks", HOOKLINE_HOOK_PATH=str(tmp_path))
    assert code == 1
    assert errors.startswith("hookline hooks: ")
    assert "libhookline_hook_text.so, a library of hooks, cannot be loaded" in errors
