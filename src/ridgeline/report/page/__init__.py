"""The report as one HTML file that opens anywhere: no server, no network, no library.

build.py    `write_page`: template, styles and scripts put together into the file
content.py  the words of the template: headline, headrooms, a table of ceilings per machine
payload.py  what the scripts draw, as compact JSON: runs, points, profiles and kernels
assets/     template.html.j2, page.css, and the scripts in the order that build.py names
"""

from ridgeline.report.page.build import write_page

__all__ = ["write_page"]
