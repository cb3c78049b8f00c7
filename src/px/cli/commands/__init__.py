"""One module per command; ``px.cli.main.COMMANDS`` says which."""
