"""Projects whose ids are known."""
