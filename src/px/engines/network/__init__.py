"""A network of allowed hosts only: the sandbox's own namespace, and a relay outside of it that knows the rules."""
