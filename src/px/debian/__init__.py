"""Debian packages to file trees, without dpkg and apt and without running any maintainer script."""
