"""Metaflow steps in sandboxes: ``@sandbox``, ``@daytona`` and ``@e2b``.

Importing this package imports no provider's SDK and nothing of px; a task inside a remote sandbox has neither.
"""
