"""``px pack image`` and ``px pack verify`` as a user runs them: every promise about deployable images."""
