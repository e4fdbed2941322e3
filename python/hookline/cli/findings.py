"""What `hookline doctor` has found, and how it is shown."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class State(enum.Enum):
    """How bad it is: only what is WRONG keeps something from working."""

    OK = "ok"
    ABSENT = "-"
    LOOK = "look"
    WRONG = "WRONG"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fix` says what to do about it where there is something to do."""

    state: State
    what: str
    fix: str = ""

    def lines(self) -> list[str]:
        """As it is printed."""
        shown = [f"  {self.state.value:<6}{self.what}"]
        return shown + ([f"        fix: {self.fix}"] if self.fix else [])


def summary(findings: Iterable[Finding]) -> tuple[str, int]:
    """The last line of the report, and the exit code: 1 where something is wrong."""
    states = [finding.state for finding in findings]
    wrong, look = states.count(State.WRONG), states.count(State.LOOK)
    if wrong:
        return f"{wrong} wrong" + (f", {look} to look at" if look else ""), 1
    return (f"nothing is wrong, {look} to look at" if look else "nothing is wrong"), 0


def bytes_text(count: float) -> str:
    """As people read sizes."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} TiB" if count < 1 << 20 else "unlimited"


def time_text(seconds: float) -> str:
    """As people read short times."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 999e-6 else f"{seconds * 1e3:.3g} ms"
