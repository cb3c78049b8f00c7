"""The content-addressed store: encoding, writing, locking, verifying and collecting its objects."""
