"""Formulas as MathML, which browsers show without any script: LaTeX is translated while the pages are built."""

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


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
