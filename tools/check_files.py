"""Checks the rules for files: their length, their names, and the sentence in their first line."""

import subprocess
import sys
from pathlib import Path

LONG, TOO_LONG = 400, 450
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "impl2"}
SOURCES = {".hpp", ".cpp", ".py", ".pyi", ".sh", ".cmake"}


def problems(root: Path, names: list[str]) -> tuple[list[str], list[str]]:
    """Returns the errors and warnings for a list of files."""
    errors, warnings = [], []
    for name in names:
        path = root / name
        if path.suffix not in SOURCES or not path.is_file():
            continue
        parts = {part.lower() for part in Path(name).with_suffix("").parts}
        if found := sorted(parts & EMPTY_NAMES):
            errors.append(f"{name}: the name '{found[0]}' does not describe the content of the file")
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".pyi":  # generated
            continue
        if len(lines) > LONG:
            text = f"{name}: {len(lines)} lines: expected at most {LONG}; consider splitting the file"
            (errors if len(lines) > TOO_LONG else warnings).append(text)
        opening = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
        if path.suffix in {".hpp", ".cpp"} and not (opening and opening[0].startswith("// ")):
            errors.append(f"{name}: the first line must be a comment with the purpose of the file")
    return errors, warnings


def main() -> int:
    """Prints errors and warnings for this repository and returns the exit code."""
    root = Path(__file__).resolve().parent.parent
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
    errors, warnings = problems(root, names)
    for line in warnings:
        print(f"warning: {line}")
    for line in errors:
        print(line)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
