"""What px asks git about a project: without running anything that the repository names."""
