"""The operating system under an env: bases, capabilities, inference, the definition and its id."""
