"""The programs that run a target inside a sandbox, behind one Protocol."""
