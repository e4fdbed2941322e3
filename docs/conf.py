"""Configures Sphinx: Markdown pages, C++ from Doxygen's XML, Python from the built package."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

project = "Hookline"
author = copyright = "The Hookline authors"  # noqa: A001
release = re.search(r'HOOKLINE_VERSION "(.*)"', (ROOT / "include/hookline/version.hpp").read_text())[1]

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
extensions += ["api_directive", "literal_links"]  # in this folder
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

breathe_projects = {"hookline": str(ROOT / "build/docs/xml")}
breathe_default_project = "hookline"
breathe_default_members = ("members", "undoc-members")
breathe_show_include = False
# A `using Base::name` in a class looks to Doxygen like a second declaration.
suppress_warnings = ["duplicate_declaration.cpp"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"Hookline {release}"
