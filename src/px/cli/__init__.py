"""The command line: parsing, rendering, exit codes. Thin: the work is in the packages below."""
