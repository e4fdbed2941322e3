"""The pinned packages of the development environment are within the ranges of pyproject.toml."""

import tomllib

from building import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def test_pins_are_within_the_ranges() -> None:
    lines = (ROOT / "tools/python-packages.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    texts += [text for extra in extras.values() for text in extra]
    for wanted in map(Requirement, texts):
        if wanted.name != "hookline":
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted
