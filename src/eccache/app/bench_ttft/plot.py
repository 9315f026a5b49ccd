"""Draws what a run found."""

from __future__ import annotations

from pathlib import Path

from eccache.app.bench_ttft.result import TtftResult


def draw(path: Path, result: TtftResult) -> None:
    """Write a picture: for each case and connector the cold time to first token beside the warm one.

    Args:
        path: Of the picture; its suffix says which format.
        result: What to draw.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    labels = [f"{one.case}\n{one.connector}" for one in result.measured]
    places = range(len(labels))
    # Lying bars: beside them a label has room, however long the file's name is.
    figure, axis = plt.subplots(figsize=(9, 1.5 + 0.6 * len(labels)), layout="constrained")
    cold = [one.cold_seconds for one in result.measured]
    warm = [one.warm_seconds or 0.0 for one in result.measured]
    axis.barh([place - 0.2 for place in places], cold, 0.4, label="cold", color="#9aa7b5")
    bars = axis.barh([place + 0.2 for place in places], warm, 0.4, label="after a restart")
    for bar, one in zip(bars, result.measured, strict=True):
        if one.speed_up is not None:
            axis.annotate(
                f" {one.speed_up:.2f} x",
                (bar.get_width(), bar.get_y() + bar.get_height() / 2),
                va="center",
            )
    axis.set_yticks(list(places), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("time to first token, s")
    axis.set_title(result.model, fontsize=10)
    axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
