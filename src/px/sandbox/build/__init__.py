"""Wheels from sources, built in a sandbox of their own."""
