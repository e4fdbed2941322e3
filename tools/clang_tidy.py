"""Runs clang-tidy on src/ and python/src, and skips files that have passed and are unchanged."""

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
# The path limit of the static analyzer per function. Its default of 225,000 triples the total time of all checks.
# HOOKLINE_ANALYZER_NODES overrides it.
ANALYZER_NODES = os.environ.get("HOOKLINE_ANALYZER_NODES", "20000")
# Precompiled headers are disabled, to detect sources that do not include what they use.
PRECOMPILED = re.compile(r" -Xclang -include(-pch)? -Xclang \S+cmake_pch\S+")


def library_sources(build: Path) -> dict[Path, dict[str, str]]:
    """Returns the entries of the compilation database for the library and the bindings, without tests."""
    entries = json.loads((build / "compile_commands.json").read_text())
    folders = (ROOT / "src", ROOT / "python/src")
    sources = {Path(e["file"]): e for e in entries if any(folder in Path(e["file"]).parents for folder in folders)}
    return {file: {**entry, "command": PRECOMPILED.sub("", entry["command"])} for file, entry in sources.items()}


def digest(entry: dict[str, str]) -> str:
    """Returns a hash of all inputs of a check: the preprocessed file, the command and the settings."""
    command = [word for word in shlex.split(entry["command"]) if "ccache" not in word]
    output = command.index("-o")
    del command[output : output + 2]
    preprocessed = subprocess.run([*command, "-E"], cwd=entry["directory"], check=True, capture_output=True).stdout
    settings = (ROOT / ".clang-tidy").read_bytes() + ANALYZER_NODES.encode()
    source = re.sub(rb"(?m)^# \d+.*$", b"", preprocessed) + Path(entry["file"]).read_bytes()  # includes NOLINT comments
    return hashlib.sha256(settings + " ".join(command).encode() + source).hexdigest()


def check(folder: Path, source: Path, entry: dict[str, str]) -> bool:
    """Checks one file with the compilation database in `folder`, unless its stamp file exists."""
    stamp = folder / digest(entry)
    if stamp.exists():
        return True
    nodes = ["-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={ANALYZER_NODES}"]
    command = [str(CLANG_TIDY), "-p", str(folder), "--quiet", "--warnings-as-errors=*"]
    command += [*(f"--extra-arg={word}" for word in nodes), str(source)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        stamp.touch()
    else:
        print(result.stdout, result.stderr, sep="", end="", flush=True)
    return result.returncode == 0


def main() -> int:
    """Checks all files on all cores."""
    build = Path(sys.argv[1]).resolve()
    sources = library_sources(build)
    folder = build / "clang-tidy"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(list(sources.values())))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda item: check(folder, *item), sorted(sources.items()))
        return 0 if all(list(results)) else 1


if __name__ == "__main__":
    sys.exit(main())
