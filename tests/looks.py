"""What every picture owes who looks at it: each series is seen, and no legend takes the page."""

import numpy as np

#: Part of a figure that one legend may take.
MOST = 0.2
#: Of the axes' width and height: what is nearer to an edge than this is not seen.
EDGE = 0.003


def series_that_are_not_seen(figure):
    """Return lines, areas and points of which nothing is inside their axes."""
    figure.draw_without_rendering()
    unseen = []
    for ax in figure.axes:
        for artist in (*ax.lines, *ax.collections):
            if not artist.get_visible() or artist.get_transform() in (
                ax.get_xaxis_transform(),
                ax.get_yaxis_transform(),
            ):
                continue
            inside = ax.transAxes.inverted().transform(_points(artist))
            inside = inside[np.isfinite(inside).all(axis=1)]
            if len(inside) and not np.any(np.all((inside > EDGE) & (inside < 1.0 - EDGE), axis=1)):
                unseen.append((ax.get_title(), artist))
    return unseen


def legend_shares(figure):
    """Return which part of the figure each of its legends takes."""
    figure.draw_without_rendering()
    legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    whole = figure.bbox.width * figure.bbox.height
    boxes = [legend.get_window_extent() for legend in legends]
    return [box.width * box.height / whole for box in boxes]


def _points(artist):
    """Return where a series is drawn, in pixels, dense enough that a line through the axes has points in them."""
    if hasattr(artist, "get_path") and not hasattr(artist, "get_paths"):
        paths = [artist.get_path()]
    else:
        paths = artist.get_paths()
    offsets = artist.get_offsets() if hasattr(artist, "get_offsets") else np.zeros((0, 2))
    if len(paths) and len(offsets) and np.any(np.asarray(offsets)):
        return artist.get_offset_transform().transform(np.asarray(offsets, float))
    vertices = [artist.get_transform().transform(path.vertices) for path in paths if len(path.vertices)]
    dense = [line[:1] for line in vertices]
    for line in vertices:
        steps = np.linspace(0.0, 1.0, 20)[:, None, None]
        dense.append((line[:-1] + steps * (line[1:] - line[:-1])).reshape(-1, 2))
    return np.concatenate(dense) if dense else np.zeros((0, 2))
