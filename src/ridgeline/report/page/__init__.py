"""The report as one HTML file that opens anywhere: no server, no network, no library.

build.py     `write_page`: template, styles and scripts put together into the file
data.py      the payload: what the scripts draw, as compact JSON
points.py    the points that fit into a page, and what was left out
runs.py      a row per run: what it measured, how to repeat it
captures.py  imported captures, after the runs
executed.py  profiles: model beside executed work, kernels by name
machines.py  roofs for the figure, ceilings for the table
columns.py   columns of numbers and words in as few bytes as they need
assets/      template.html.j2, page.css, and the scripts in the order that build.py names
"""

from ridgeline.report.page.build import write_page

__all__ = ["write_page"]
