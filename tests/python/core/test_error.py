"""The error types in Python, and errors that pass through C++."""

import pickle
import traceback

import pytest

import hookline
from hookline import _core

probe = _core._probe

BASES = {
    "InvalidArgument": ValueError,
    "Unsupported": NotImplementedError,
    "Timeout": TimeoutError,
    "PeerLost": RuntimeError,
    "Mismatch": RuntimeError,
    "Aborted": RuntimeError,
    "ResourceError": OSError,
    "Error": Exception,
}


@pytest.mark.parametrize(("name", "base"), BASES.items())
def test_type(name: str, base: type) -> None:
    kind = getattr(hookline, name)
    assert issubclass(kind, hookline.Error)
    assert issubclass(kind, base)
    assert kind.__module__ == "hookline"
    with pytest.raises(kind, match=r"^number 0$") as caught:
        probe.throw_chain([name])
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", BASES)
def test_pickle(name: str) -> None:
    error = pickle.loads(pickle.dumps(getattr(hookline, name)("text")))
    assert type(error) is getattr(hookline, name)
    assert str(error) == "text"


def test_ranks() -> None:
    with pytest.raises(hookline.PeerLost) as caught:
        probe.throw_with_ranks([4, 2])
    error = caught.value
    assert error.ranks == (2, 4)
    assert pickle.loads(pickle.dumps(error)).ranks == (2, 4)

    def hook() -> None:
        raise error

    assert probe.caught_ranks(hook) == [2, 4]
    with pytest.raises(hookline.PeerLost) as passed:
        probe.rethrow_on_other_thread(hook)
    assert passed.value.ranks == (2, 4)


def test_ranks_that_are_not_known() -> None:
    assert hookline.Timeout("text").ranks == ()
    error = hookline.Timeout("text")
    error.ranks = "what the user likes"

    def hook() -> None:
        raise error

    assert probe.caught_ranks(hook) == []


def test_causes_become_a_chain() -> None:
    with pytest.raises(hookline.Aborted) as caught:
        probe.throw_chain(["Aborted", "PeerLost", "std", "Timeout"])
    chain = [caught.value, caught.value.__cause__, caught.value.__cause__.__cause__]
    assert [type(e) for e in chain] == [hookline.Aborted, hookline.PeerLost, RuntimeError]
    assert [str(e) for e in chain] == ["number 0", "number 1", "number 2"]
    assert chain[2].__cause__ is None  # a std::exception has no cause


def test_python_exception_as_a_cause() -> None:
    error = KeyError("key")

    def hook() -> None:
        raise error

    with pytest.raises(hookline.Aborted, match="the hook failed") as caught:
        probe.throw_caused_by(hook)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (hookline.Timeout("late"), "Timeout|late"),
        (hookline.PeerLost("rank 1"), "PeerLost|rank 1"),
        (hookline.Error("plain"), "Error|plain"),
        (KeyError("k"), "Error|KeyError: 'k'"),
        (AssertionError(), "Error|AssertionError"),
    ],
)
def test_caught_in_cpp(error: Exception, expected: str) -> None:
    def hook() -> None:
        raise error

    assert probe.caught(hook) == expected


def test_subclass_of_ours_is_caught_as_its_base() -> None:
    class Late(hookline.Timeout):
        pass

    def hook() -> None:
        raise Late("very")

    assert probe.caught(hook) == "Timeout|very"


def test_exception_without_a_text() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def hook() -> None:
        raise Silent

    assert "cannot be printed" in probe.caught(hook)


@pytest.mark.parametrize("error", [KeyError("k"), hookline.Timeout("late"), KeyboardInterrupt()])
def test_the_same_object_comes_back(error: BaseException) -> None:
    def innermost() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        probe.rethrow_on_other_thread(innermost)
    assert caught.value is error
    assert "innermost" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
