"""px: deterministic sandboxes for Python."""

import os

__version__ = "0.1.0"

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
"""px's own tables: bases, capabilities, error texts and the like.  A string, because pathlib is slow to import."""
