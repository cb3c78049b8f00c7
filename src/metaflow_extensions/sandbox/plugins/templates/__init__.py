"""Templates and snapshots: what a provider makes of an image once, and then starts sandboxes from."""
