"""The supply line: the project's pins, what is known to be bad, bundles, and the shared cache."""
