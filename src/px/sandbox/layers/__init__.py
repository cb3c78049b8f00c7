"""The trees that an image is made of, lowest first: base, system, Python, env, project."""
