"""What the API reference shows: this package's names, linked where they are mentioned; nothing of scikit-learn's."""

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
        self, env: BuildEnvironment, refnode: Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Look for it among Python's names."""
        refnode["refdomain"], refnode["reftype"], refnode["optional"] = "py", "obj", True
        refnode["py:module"] = env.ref_context.get("py:module")
        refnode["py:class"] = env.ref_context.get("py:class")
        return title, target


def _elsewhere(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: TextElement) -> Node | None:
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


def _skip(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    if what == "module" and name in dpfast.__all__:
        return True  # it has its place on the page of its family, under the name by which it is imported
    inner = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
    home = getattr(inner, "__module__", None) or ""
    return True if home.startswith(("sklearn.", "builtins")) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of it."""
    app.add_role("name", NameRole(innernodeclass=nodes.literal))
    app.connect("missing-reference", _elsewhere)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
