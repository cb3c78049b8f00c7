"""The projects here are data: their own tests are not ours."""

collect_ignore = ["shop"]
