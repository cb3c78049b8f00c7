"""TODO worktree."""
