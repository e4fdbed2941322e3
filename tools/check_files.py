"""Checks the house rules on files: their length, their names, and the sentence at their beginning."""

import subprocess
import sys
from pathlib import Path

LONG, TOO_LONG = 400, 450
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "impl2"}
SOURCES = {".hpp", ".cpp", ".py", ".pyi", ".sh", ".cmake"}


def problems(root: Path, names: list[str]) -> tuple[list[str], list[str]]:
    """What must be put right, and what should be looked at."""
    errors, warnings = [], []
    for name in names:
        path = root / name
        if path.suffix not in SOURCES or not path.is_file():
            continue
        parts = {part.lower() for part in Path(name).with_suffix("").parts}
        if found := sorted(parts & EMPTY_NAMES):
            errors.append(f"{name}: '{found[0]}' does not say what the file is for")
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".pyi":  # generated
            continue
        if len(lines) > LONG:
            text = f"{name}: {len(lines)} lines; past {LONG}, look for the second idea in it"
            (errors if len(lines) > TOO_LONG else warnings).append(text)
        opening = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
        if path.suffix in {".hpp", ".cpp"} and not (opening and opening[0].startswith("// ")):
            errors.append(f"{name}: the first line must say in one sentence what the file is for")
    return errors, warnings


def main() -> int:
    """Prints what is wrong with the files of this tree; 1 where something is."""
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
