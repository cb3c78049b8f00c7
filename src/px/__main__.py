"""``python -m px``."""

from px.cli.main import main

main()
