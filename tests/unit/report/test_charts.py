"""What a chart holds beside its lines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.lines import Line2D

from intrigue.report.arms import ArmRuns
from intrigue.report.charts import CHART_INCHES, add_legend_below, draw_line_chart, make_figure, use_style
from intrigue.report.record import read_record
from report_folders import config_of, write_run

names = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def legend_of(width: float, lengths: list[int], columns: int):
    """The figure and its legend of labels that long."""
    handles = [Line2D([], [], label="m" * length) for length in lengths]
    figure = make_figure(width, 3.0)
    return figure, add_legend_below(figure, handles, columns, fontsize=10)


@settings(max_examples=25, deadline=None)
@given(names, st.floats(4.0, 12.0), st.integers(1, 6))
def test_a_legend_stays_within_its_figure(lengths: list[int], width: float, columns: int) -> None:
    with use_style():
        figure, legend = legend_of(width, lengths, columns)
        assert len(figure.legends) == 1
        assert [text.get_text() for text in legend.get_texts()] == ["m" * length for length in lengths]
        fits = legend.get_window_extent().width <= figure.bbox.width
        _, single = legend_of(width, lengths, 1)
        assert fits or single.get_window_extent().width > figure.bbox.width  # a label that alone is too long


@pytest.mark.parametrize(("labels", "columns", "expected"), [(7, 6, 4), (6, 6, 6), (4, 3, 2), (1, 3, 1)])
def test_rows_of_a_legend_are_about_as_full(labels: int, columns: int, expected: int) -> None:
    """Seven of at most six a row are four and three, not six and one."""
    with use_style():
        figure, legend = legend_of(40.0, [3] * labels, columns)
        figure.draw_without_rendering()
        places = {round(text.get_window_extent().x0) for text in legend.get_texts()}
    assert len(places) == expected == math.ceil(labels / math.ceil(labels / columns))


def test_a_narrow_figure_gets_more_rows() -> None:
    with use_style():
        figure, legend = legend_of(5.0, [12] * 6, 6)
        figure.draw_without_rendering()
        lines = {round(text.get_window_extent().y0) for text in legend.get_texts()}
    assert len(lines) > 1


def test_many_arms_leave_the_curves_their_room(tmp_path) -> None:
    """The chart grows with its legend; names that only their ends tell apart stay whole."""
    record = read_record(write_run(tmp_path / "run", config_of()))
    assert record.config is not None
    labels = [f"nnm (knn, from snapshot 2000000 of walker-{index})" for index in range(20)]
    heights = []
    with use_style():
        for shown in (labels[:1], labels):
            arms = [ArmRuns(label, record.config, (record,)) for label in shown]
            chart = draw_line_chart(arms, "intrinsic/raw_mean", "bonus", 1.0)
            assert chart is not None
            chart.draw_without_rendering()
            (axes,), (legend,) = chart.axes, chart.legends
            assert [text.get_text() for text in legend.get_texts()] == shown
            heights.append(axes.get_window_extent().height / chart.dpi)
    assert min(heights) > CHART_INCHES[1] / 3
