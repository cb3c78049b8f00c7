"""Two sandboxes side by side: which two are meant, and what is in each."""
