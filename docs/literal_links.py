"""Links inline code on pages to the API reference: `hl.Reducer`, `ht.stats` and `Reducer::finalize` become links."""

from docutils import nodes
from sphinx.application import Sphinx

PYTHON_PREFIXES = {"hl.": "hookline.", "ht.": "hookline_torch."}


def targets_of(app: Sphinx) -> dict[str, tuple[str, str]]:
    """Returns page and anchor of each name of the reference, by the ways to write it."""
    targets: dict[str, tuple[str, str]] = {}
    for name, _, _, page, anchor, _ in app.env.get_domain("cpp").get_objects():
        if name.startswith("hookline::"):
            short = name.removeprefix("hookline::")
            targets[name] = targets[f"hl::{short}"] = (page, anchor)
            if "::" in short or short[0].isupper():
                targets.setdefault(short, (page, anchor))
    for name, _, _, page, anchor, _ in app.env.get_domain("py").get_objects():
        targets[name] = (page, anchor)
        for prefix, module in PYTHON_PREFIXES.items():
            if name.startswith(module):
                targets[prefix + name.removeprefix(module)] = (page, anchor)
    return targets


def link_literals(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Wraps each inline literal that names a symbol in a reference, outside of headings, links and signatures."""
    targets = targets_of(app)
    for literal in list(doctree.findall(nodes.literal)):
        target = targets.get(literal.astext().split("(")[0])
        if target is None or isinstance(literal.parent, nodes.reference | nodes.title):
            continue
        uri = app.builder.get_relative_uri(page, target[0]) + "#" + target[1]
        literal.replace_self(nodes.reference("", "", literal.deepcopy(), internal=True, refuri=uri))


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this when it loads the extension."""
    app.connect("doctree-resolved", link_literals)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
