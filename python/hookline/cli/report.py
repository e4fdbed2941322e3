"""The findings of `hookline doctor`, and how the report prints them."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class State(enum.Enum):
    """The severity of a finding. Only FAIL means that something does not work."""

    OK = "ok"
    NOT_APPLICABLE = "n/a"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fix` tells the user what to do, if anything."""

    state: State
    text: str
    fix: str = ""

    def lines(self) -> list[str]:
        """Returns the lines to print."""
        shown = [f"  {self.state.value:<6}{self.text}"]
        return shown + ([f"        fix: {self.fix}"] if self.fix else [])


def summary(findings: Iterable[Finding]) -> tuple[str, int]:
    """Returns the last line of the report and the exit code: 1 if a check failed."""
    states = [finding.state for finding in findings]
    failed, warnings = states.count(State.FAIL), states.count(State.WARN)
    text = f"{failed} check{'' if failed == 1 else 's'} failed" if failed else "all checks passed"
    if warnings:
        text += f", {warnings} warning{'' if warnings == 1 else 's'}"
    return text, 1 if failed else 0


def format_bytes(count: float) -> str:
    """Returns a size with its unit, as in "1.5 MiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} TiB" if count < 1 << 20 else "unlimited"


def format_duration(seconds: float) -> str:
    """Returns a duration with its unit, as in "12 µs" or "3.4 ms"."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 999e-6 else f"{seconds * 1e3:.3g} ms"
