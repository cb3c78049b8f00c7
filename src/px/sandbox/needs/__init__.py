"""TODO needs."""
