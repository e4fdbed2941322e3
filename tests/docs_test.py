"""Every room with public headers has a page, and every decision record is in the index."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path.name for path in (ROOT / "include/hookline").iterdir() if path.is_dir())


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_page(room: str) -> None:
    assert f"```{{room}} {room}\n" in (ROOT / f"docs/{room}.md").read_text()
    assert room in (ROOT / "docs/index.md").read_text().splitlines()


def test_decisions_are_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "index.md").read_text().splitlines()
    assert [path.stem for path in sorted(folder.glob("*.md")) if path.stem != "index"] == [
        line for line in index if line.startswith("0")
    ]
