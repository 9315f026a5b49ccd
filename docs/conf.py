"""How Sphinx builds the documentation. Nothing is fetched: it builds without a network."""

from importlib import metadata

project = "eccache"
author = "The eccache authors"
release = metadata.version("eccache")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"eccache {release}"
exclude_patterns = ["_build"]

# A reference to a name of ours that does not exist is an error; other projects' pages are not here.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!eccache\b).*"),
    (r"py:class", r".*\.[TR]"),
]  # type variables

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_use_ivar = True  # attrs fields are described once, in the class's "Attributes"
default_role = "code"  # docstrings write `name` for code
