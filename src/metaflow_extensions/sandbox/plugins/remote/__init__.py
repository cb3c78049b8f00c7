"""A task at a provider: what goes into its sandbox, what runs there, and what comes back."""
