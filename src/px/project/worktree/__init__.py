"""Which files of the working tree count, and what they are."""
