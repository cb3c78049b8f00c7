"""``--environment=px``: steps that run elsewhere stand on the image of the px project around the flow."""
