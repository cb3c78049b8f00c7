"""What is known about the sandbox of a task, and how a card shows it.  Metaflow finds the card itself in ``cards``."""
