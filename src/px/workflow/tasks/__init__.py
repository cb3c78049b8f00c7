"""Images for tasks of Metaflow that run elsewhere: the project's image, and one layer with what a task needs."""
