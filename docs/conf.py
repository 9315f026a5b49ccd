"""How Sphinx builds the documentation."""

from importlib import metadata

project = "eccache"
author = "The eccache authors"
release = metadata.version("eccache")

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"eccache {release}"
exclude_patterns = ["_build"]
nitpicky = True
