"""TODO build."""
