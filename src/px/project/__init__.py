"""The project model: discovery, manifest, lock, workspace, the state machine and what it allows."""
