"""Everything that a warm run imports, and nothing else.

A run is warm when nothing changed since the project's env or sandbox was built.  Then px has almost nothing to do,
and the time that it takes is the time that its imports take.  So there is one rule for the modules of this folder:

    They import each other, and of the standard library only what a starting Python has loaded anyway (os, sys) or
    what costs next to nothing.  No dataclasses, typing, pathlib, re, json, signal, subprocess or threading.

Names that only annotations need stand under ``TYPE_CHECKING = False``: the constant of ``typing`` would import it.
Errors and messages are imported inside the function that has something to say, because a warm run has nothing to say.
Everything outside of this folder is written like any other Python.  A test of imports holds the list.
"""
