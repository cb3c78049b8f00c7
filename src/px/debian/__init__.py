"""Debian without Debian's tools: signed indexes, versions, dependencies, .deb files and what their scripts would do."""
