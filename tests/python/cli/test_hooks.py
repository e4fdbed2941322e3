"""`hookline hooks` lists the registered hooks."""

import re
from pathlib import Path

import pytest

import hookline as hl
from hookline import cli


def test_all_hooks_with_options_and_a_line_each(capsys):
    assert cli.main(["hooks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "int4(block=128, range=symmetric, rounding=nearest, seed=0)" in lines
    assert "… | where(name=*, min_size=0, max_size=…, dims=-1, fallback=allreduce)" in lines
    assert lines[1::2] == [
        f"    {hl.registered_hooks()[line.removeprefix('… | ').split('(')[0]]}" for line in lines[::2]
    ]
    assert len(lines) == 2 * len(hl.registered_hooks())
    assert all(line.strip() for line in lines)


def test_every_hook_has_a_row_on_the_page_of_hooks():
    page = (Path(__file__).parents[3] / "docs/reference/hook.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| ", page, re.MULTILINE)
    assert [name for name in hl.registered_hooks() if not any(re.search(rf"\b{name}\b", row) for row in rows)] == []


def test_one_hook(capsys):
    assert cli.main(["hooks", "powersgd"]) == 0
    out = capsys.readouterr().out
    assert "\n    wire: one of fp32, fp16, bf16 (default: fp32)\n" in out
    assert cli.main(["hooks", "powersdg"]) == 2
    assert "unknown hook 'powersdg': expected one of allreduce, " in capsys.readouterr().err


def test_options_of_a_hook():
    assert hl.hook_options("int8")["block"] == ("512", "an integer, or tensor")
    assert hl.hook_options("noop") == {}
    with pytest.raises(hl.InvalidArgument, match="no hook is called x"):
        hl.hook_options("x")
