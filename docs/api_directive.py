"""Adds the directive {api}: documents every public C++ symbol of one module, from Doxygen's XML."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent
XML = ROOT / "build/docs/xml"
INCLUDE = ROOT / "include/hookline"
NAMESPACES = ["hookline", "hookline::libtorch"]  # the public ones


@cache
def read_xml(name: str) -> ET.Element:
    """Returns the root of one of Doxygen's files."""
    return ET.parse(XML / f"{name}.xml").getroot()


def text_of(element: ET.Element | None) -> str:
    """Returns the text of an element in one line."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def declaration_of(member: ET.Element) -> str:
    """Returns the declaration of a function, constant or alias, without a constant's value."""
    if member.get("kind") == "typedef":
        return f"{member.findtext('qualifiedname')} = {text_of(member.find('type'))}"
    template = member.find("templateparamlist")
    prefix = ""
    if template is not None:
        parameters = [f"{text_of(p.find('type'))} {text_of(p.find('declname'))}".strip() for p in template]
        prefix = f"template <{', '.join(parameters)}> "
    return prefix + text_of(member.find("definition")) + text_of(member.find("argsstring"))


def classes_of(namespace: str, header: str) -> Iterator[str]:
    """Yields the reStructuredText of the classes that a header declares directly in a namespace."""
    for compound in read_xml("index").iter("compound"):
        kind, name = compound.get("kind"), compound.findtext("name", "")
        if kind not in {"class", "struct"} or name.rpartition("::")[0] != namespace or "<" in name:
            continue
        location = read_xml(compound.get("refid", "")).find("compounddef/location")
        if location is not None and location.get("file") == f"hookline/{header}":
            yield from (f".. doxygen{kind}:: {name}", "   :members:", "   :undoc-members:", "")


def members_of(namespace: str, header: str) -> Iterator[str]:
    """Yields the reStructuredText of the functions, constants, aliases and enums of a header."""
    for member in read_xml("namespace" + namespace.replace("::", "_1_1")).iter("memberdef"):
        location, kind, name = member.find("location"), member.get("kind"), member.findtext("name", "")
        if location is None or location.get("file") != f"hookline/{header}" or name.startswith("operator"):
            continue
        if kind == "enum":
            yield from (f".. doxygenenum:: {namespace}::{name}", "")
        elif kind in {"function", "variable", "typedef"}:
            directive = {"function": "function", "variable": "var", "typedef": "type"}[kind]
            yield from (f".. cpp:{directive}:: {declaration_of(member)}", "")
            for part in ("briefdescription", "detaileddescription"):
                if text := text_of(member.find(part)):
                    yield from (f"   {text}", "")


class ModuleApi(SphinxDirective):
    """``{api} core`` on a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parses the generated text in place of the directive."""
        module = self.arguments[0]
        result = []
        for path in sorted((INCLUDE / module).rglob("*.hpp")):
            header = path.relative_to(INCLUDE).as_posix()
            lines = [line for space in NAMESPACES for part in (classes_of, members_of) for line in part(space, header)]
            if lines:
                text = "\n".join([f".. rubric:: <hookline/{header}>", "", *lines])
                result += self.parse_text_to_nodes(f"```{{eval-rst}}\n{text}\n```\n")
        if not result:
            raise self.error(f"no header of the module {module!r} declares anything")
        return result


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this when it loads the extension."""
    app.add_directive("api", ModuleApi)
    return {"parallel_read_safe": True}
