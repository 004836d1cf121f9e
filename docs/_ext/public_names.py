"""What the API reference shows: this package's names, linked where they are mentioned; nothing of scikit-learn's."""

import re
from typing import Any

from docutils import nodes
from docutils.nodes import Element, Node, TextElement
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole

import dpfast


class NameRole(XRefRole):
    """`name` in a docstring: a link where the name is documented, and code where it is not."""

    def process_link(
        self,
        env: BuildEnvironment,
        refnode: Element,
        has_explicit_title: bool,
        title: str,
        target: str,
    ) -> tuple[str, str]:
        """Look for it among Python's names."""
        refnode["refdomain"], refnode["reftype"], refnode["optional"] = "py", "obj", True
        refnode["py:module"] = env.ref_context.get("py:module")
        refnode["py:class"] = env.ref_context.get("py:class")
        return title, target


def _elsewhere(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: TextElement
) -> Node | None:
    """Look a name up among the package's own; what is none of them is left as code."""
    if not node.get("optional"):
        return None
    name = node["reftarget"].removesuffix("()")
    node.attributes.pop("optional")
    if name in dpfast.__all__:
        found = env.get_domain("py").resolve_xref(
            env, node.get("refdoc", ""), app.builder, "obj", f"dpfast.{name}", node, content
        )
        if found is not None:
            return found
    return content


def _skip(
    app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn wrote; of packages show every name that they list."""
    if what == "module":
        # Names of the front page have their place on the page of their family, under which they are imported.
        return True if name in dpfast.__all__ else None
    inner = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
    home = getattr(inner, "__module__", None) or ""
    return True if home.startswith(("sklearn.", "builtins")) else None


def _without_own_words(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Of packages show the names alone: their docstrings speak to readers of the source, pages say what they are."""
    if what == "module":
        lines.clear()


def _number_citations(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Show a source as [1]: numpydoc makes labels unique among pages, for which nobody looks."""
    for text in list(tree.findall(nodes.Text)):
        numbered = re.sub(r"\bR[0-9a-f]{6,}-(\d+)\b", r"\1", text)
        if numbered != text:
            text.parent.replace(text, nodes.Text(numbered))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of it."""
    app.add_role("name", NameRole(innernodeclass=nodes.literal))
    app.connect("missing-reference", _elsewhere)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _without_own_words, priority=900)
    app.connect("doctree-resolved", _number_citations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
