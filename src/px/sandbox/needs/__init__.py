"""What an env needs of the system: capabilities, how they are inferred, and the link check."""
