"""How the documentation is built: ``python -m sphinx -W --keep-going -n docs docs/_build``, with no network."""

import sys
from pathlib import Path

import dpfast

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "dpfast"
author = "The dpfast developers"
copyright = "the dpfast developers, BSD 3-Clause licence"
version = release = dpfast.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "public_names",
]
exclude_patterns = [
    "_build",
    "gallery",
]  # sphinx-gallery reads the sources there, and writes pages of them

# Pages are Markdown. Headings of three levels can be linked to: [text](page.md#the-heading).
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Formulas are MathML, made from LaTeX while building: the browser shows them by itself, where MathJax would have to be
# fetched, or bundled at 4 MB.
html_math_renderer = "mathml"

# In docstrings, `name` is a Python name where there is one, and code where there is none.
default_role = "name"
nitpicky = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_typehints = "none"  # the Parameters sections say more
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autosummary_generate = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
    "image_scrapers": ("matplotlib",),
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "copyfile_regex": r".*\.csv",
}

# Pictures in pages: of the scripts in pictures/, run while building.
plot_formats = [("png", 150)]
plot_html_show_formats = False
plot_html_show_source_link = False

# Prompts are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "dpfast"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["dpfast.css"]
html_show_sourcelink = False
html_sidebars = {
    page: ["all-pages"]
    for page in ("index", "start", "performance", "changelog", "search", "genindex")
}
html_theme_options = {
    "logo": {"text": "dpfast"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "back_to_top_button": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
}
