"""Run by a base's own interpreter, never by px's: compile the files named on standard input into one archive.

Input, a line each: the path in the image, a tab, the file to read.  Output, for each file that compiles:
the path and the content of its .pyc, both preceded by their lengths as four bytes.  The .pyc is of the
kind whose validity is never checked against its source, because an image's files have no honest times.
"""

import importlib.util
import marshal
import sys

# Marshal's later formats mark what is referred to more than once, which depends on whatever else this process
# holds; format 2 depends on the code alone. It is a fifth larger and loads as well.
FORMAT = 2
# Flags of a .pyc: identified by the hash of its source (bit 0), which is not checked (bit 1 not set).
HEAD = importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little")

with open(sys.argv[1], "wb") as out:
    for line in sys.stdin.buffer.read().decode("utf-8").splitlines():
        path, _, source_file = line.partition("\t")
        with open(source_file, "rb") as f:
            source = f.read()
        try:
            # The optimisation level is said, so that no environment variable of the host decides it.
            code = compile(source, "/" + path, "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, ValueError):
            continue  # templates and test data that only look like modules
        content = HEAD + importlib.util.source_hash(source) + marshal.dumps(code, FORMAT)
        name = importlib.util.cache_from_source(path, optimization="").encode("utf-8")
        out.writelines(len(part).to_bytes(4, "little") + part for part in (name, content))
