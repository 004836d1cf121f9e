"""Formulas as MathML, which browsers show without any script: LaTeX is translated while the pages are built.

In the text of proofs formulas are written as code, such as `S_xx` and `e^(-kβ)`: their indices and powers are set.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _display(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    writer.body.append(convert(node.astext(), display="block"))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


_LETTERS = "A-Za-z0-9α-ωΑ-Ω∞"
#: An index of a single letter, or a power: in braces, in parentheses, or of letters and digits.
_SCRIPT = re.compile(
    rf"(?:(?<![A-Za-z][A-Za-z])(?<=[^\s_])_|\^)(?:{{([^}}]*)}}|\(([^()]*)\)|(-?[{_LETTERS}]+))"
)

#: A name, an argument or a call of Python's.
_NAME = re.compile(r"(?!sqrt\(|floor\()[A-Za-z_][\w.]{2,}(?:[(=]|$)|[\"']")


def _set_scripts(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Set indices and powers of formulas in the text of proofs; names of Python stay."""
    if not page.startswith("proofs/"):
        return
    for code in list(tree.findall(nodes.literal)):
        text, done = code.astext(), 0
        if _NAME.match(text) or "reference" in code.parent.tagname:
            continue
        formula = nodes.inline(classes=["math-text"])
        for found in _SCRIPT.finditer(text):
            kind = nodes.superscript if found[0].startswith("^") else nodes.subscript
            script = next(group for group in found.groups() if group is not None)
            formula += [nodes.Text(text[done : found.start()]), kind("", script)]
            done = found.end()
        formula += nodes.Text(text[done:])
        code.parent.replace(code, formula)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of it."""
    app.connect("doctree-resolved", _set_scripts)
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
