"""One self-contained HTML file about one training run or several.

_history   what a run's folder tells: its numbers step by step, its config, its starts
_thinning  a curve of any length as few points
_charts    which numbers stand in which chart
_tables    what is told in words and tables
_page      all of it in one file, with the page's own HTML, style and script from ``page/`` and uPlot from ``vendor/``
"""

from ._history import History as History
from ._history import Sample as Sample
from ._history import read_history as read_history
from ._page import render as render
