"""How Sphinx builds the documentation. It needs no network and treats warnings as errors."""

from ridgeline.version import __version__

project = "ridgeline"
author = "the ridgeline authors"
project_copyright = "the ridgeline authors"
release = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"ridgeline {release}"
html_show_sphinx = False
