"""Content-addressed objects: how they are encoded, written, locked, referenced, verified and collected."""
