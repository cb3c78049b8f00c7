"""Sphinx's settings for the site; docs/site.py gives it the pages and sets these variables."""

import os

project = "px"
author = "px"
version = release = os.environ["PX_SITE_VERSION"]
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["README.md"]  # index is made from it
nitpicky = True
myst_heading_anchors = 4
pygments_style = "default"

html_theme = "pydata_sphinx_theme"
html_title = "px"
html_favicon = "icon.svg"
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
html_theme_options = {
    "navbar_end": ["version-switcher", "theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "check_switcher": False,
    "switcher": {"json_url": os.environ["PX_SITE_URL"] + "versions.json", "version_match": version},
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "use_edit_page_button": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars: dict[str, list[str]] = {"index": []}
# Terminal output and configuration that no highlighter has a name for is shown as it is.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
