"""A frame of estimates: pandas' own in all but how it is shown. Imported only where pandas is there."""

from __future__ import annotations

from typing import Any

from dpfast._documents import card, facts, printed
from dpfast._optional import optional
from dpfast.io.summaries import header_lines, latex_bytes, markdown_lines, plain_markdown, table_columns

pd = optional("pandas", "summary")


class SummaryFrame(pd.DataFrame):  # type: ignore[name-defined]
    """A DataFrame that prints its ``attrs`` above it and leaves no column out.

    Selections and roundings of it are such frames; where pandas drops ``attrs``, they print as any other frame.
    """

    @property
    def _constructor(self) -> Any:
        return SummaryFrame

    def __repr__(self) -> str:
        """Print the header, and every column."""
        most = pd.get_option("display.max_rows")
        shown = self.to_string(max_rows=most, min_rows=pd.get_option("display.min_rows"), max_cols=None)
        return "\n".join([*self._header(), shown])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        said = dict(header_lines(self.attrs))
        shown = self.to_html(max_rows=pd.get_option("display.max_rows"), max_cols=None, border=0)
        return card(said.pop("estimator", "Summary"), facts(said.items()), shown)

    def to_markdown(self, *arguments: Any, **options: Any) -> Any:
        """Return the header and the table as Markdown; with arguments, as pandas does, which needs tabulate."""
        if arguments or options:
            return super().to_markdown(*arguments, **options)
        said = [f"- {name}: {plain_markdown(text)}" for name, text in header_lines(self.attrs)]
        return "\n".join([*said, *([""] if said else []), *markdown_lines(table_columns(self))])

    def to_latex(self, *arguments: Any, **options: Any) -> Any:
        """Return the table for booktabs below its header in comments; with arguments, as pandas does (needs Jinja2)."""
        if arguments or options:
            return super().to_latex(*arguments, **options)
        return "\n".join([*(f"% {line}" for line in self._header()), latex_bytes(table_columns(self)).decode()])

    def _header(self) -> list[str]:
        said = [(name, " ".join(printed(text).split())) for name, text in header_lines(self.attrs)]
        width = max((len(name) for name, _ in said), default=0)
        return [f"{name:<{width}}  {text}" for name, text in said]
