"""Attacks: what a dependency, a build or a target could try, to reach the host from inside."""
