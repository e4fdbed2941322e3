"""Runs clang-tidy over src/ and python/src, skipping files that passed before and have not changed since."""

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLANG_TIDY = ROOT / ".venv/bin/clang-tidy"
# How far the analyzer follows the paths of one function; its own default of 225,000 takes three times as long for all
# checks together. HOOKLINE_ANALYZER_NODES sets another one.
ANALYZER_NODES = os.environ.get("HOOKLINE_ANALYZER_NODES", "20000")
# The precompiled header is left out, so that a source which does not include what it uses is found.
PRECOMPILED = re.compile(r" -Xclang -include(-pch)? -Xclang \S+cmake_pch\S+")


def our_sources(build: Path) -> dict[Path, dict[str, str]]:
    """The entries of the compilation database that are checked: the library and the bindings, not the tests."""
    entries = json.loads((build / "compile_commands.json").read_text())
    rooms = (ROOT / "src", ROOT / "python/src")
    ours = {Path(e["file"]): e for e in entries if any(room in Path(e["file"]).parents for room in rooms)}
    return {file: {**entry, "command": PRECOMPILED.sub("", entry["command"])} for file, entry in ours.items()}


def digest(entry: dict[str, str]) -> str:
    """A hash of everything that the result depends on: the file after preprocessing, the command and the settings."""
    command = [word for word in shlex.split(entry["command"]) if "ccache" not in word]
    output = command.index("-o")
    del command[output : output + 2]
    preprocessed = subprocess.run([*command, "-E"], cwd=entry["directory"], check=True, capture_output=True).stdout
    settings = (ROOT / ".clang-tidy").read_bytes() + ANALYZER_NODES.encode()
    source = re.sub(rb"(?m)^# \d+.*$", b"", preprocessed) + Path(entry["file"]).read_bytes()  # NOLINT comments count
    return hashlib.sha256(settings + " ".join(command).encode() + source).hexdigest()


def check(folder: Path, source: Path, entry: dict[str, str]) -> bool:
    """Checks one file by the commands in `folder`, unless its mark is there."""
    mark = folder / digest(entry)
    if mark.exists():
        return True
    nodes = ["-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={ANALYZER_NODES}"]
    command = [str(CLANG_TIDY), "-p", str(folder), "--quiet", "--warnings-as-errors=*"]
    command += [*(f"--extra-arg={word}" for word in nodes), str(source)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        mark.touch()
    else:
        print(result.stdout, result.stderr, sep="", end="", flush=True)
    return result.returncode == 0


def main() -> int:
    """Checks all files on all cores."""
    build = Path(sys.argv[1]).resolve()
    sources = our_sources(build)
    folder = build / "clang-tidy"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(list(sources.values())))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda item: check(folder, *item), sorted(sources.items()))
        return 0 if all(list(results)) else 1


if __name__ == "__main__":
    sys.exit(main())
