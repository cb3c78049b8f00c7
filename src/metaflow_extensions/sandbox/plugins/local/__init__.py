"""A task in a px sandbox on this machine.  ``entrypoint`` is the way in, ``launcher`` is the program that it starts."""
