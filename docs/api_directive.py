"""The directive {api}: everything that the public headers of one module declare for users, from Doxygen's XML."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent
XML = ROOT / "build/docs/xml"
INCLUDE = ROOT / "include/hookline"


def text_of(element: ET.Element | None) -> str:
    """The words of an element, in one line."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def declaration_of(member: ET.Element) -> str:
    """A function or constant as it was declared, without its value."""
    template = member.find("templateparamlist")
    if template is not None:
        parameters = [f"{text_of(p.find('type'))} {text_of(p.find('declname'))}".strip() for p in template]
        prefix = f"template <{', '.join(parameters)}> "
    else:
        prefix = ""
    return prefix + text_of(member.find("definition")) + text_of(member.find("argsstring"))


def lines_for(header: str) -> Iterator[str]:
    """The reStructuredText of a header: its classes, then what it declares in namespace hookline itself."""
    index = ET.parse(XML / "index.xml")
    for compound in index.iter("compound"):
        kind, name = compound.get("kind"), compound.findtext("name", "")
        if kind not in {"class", "struct"} or not name.startswith("hookline::"):
            continue
        definition = ET.parse(XML / f"{compound.get('refid')}.xml").find("compounddef")
        nested = any(name.startswith(f"{other}::") for other in class_names(index) if other != name)
        if definition.find("location").get("file") == f"hookline/{header}" and "<" not in name and not nested:
            yield from (f".. doxygen{kind}:: {name}", "   :members:", "   :undoc-members:", "")
    for member in ET.parse(XML / "namespacehookline.xml").iter("memberdef"):
        if member.find("location").get("file") != f"hookline/{header}":
            continue
        kind, name = member.get("kind"), member.findtext("name")
        if kind == "enum":
            yield from (f".. doxygenenum:: hookline::{name}", "")
        elif kind in {"function", "variable", "typedef"} and not name.startswith("operator"):
            directive = {"function": "function", "variable": "var", "typedef": "type"}[kind]
            declaration = declaration_of(member)
            if kind == "typedef":
                declaration = f"hookline::{name} = {text_of(member.find('type'))}"
            yield from (f".. cpp:{directive}:: {declaration}", "")
            for part in ("briefdescription", "detaileddescription"):
                if text := text_of(member.find(part)):
                    yield from (f"   {text}", "")


def class_names(index: ET.ElementTree) -> list[str]:
    """The qualified names of all classes that Doxygen saw."""
    return [c.findtext("name", "") for c in index.iter("compound") if c.get("kind") in {"class", "struct"}]


class ModuleApi(SphinxDirective):
    """``{api} core`` on a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parses the generated text in place of the directive."""
        module = self.arguments[0]
        result = []
        for path in sorted((INCLUDE / module).rglob("*.hpp")):
            header = path.relative_to(INCLUDE).as_posix()
            if lines := list(lines_for(header)):
                text = "\n".join([f".. rubric:: <hookline/{header}>", "", *lines])
                result += self.parse_text_to_nodes(f"```{{eval-rst}}\n{text}\n```\n")
        if not result:
            raise self.error(f"no header of the module {module!r} declares anything")
        return result


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this when it loads the extension."""
    app.add_directive("api", ModuleApi)
    return {"parallel_read_safe": True}
