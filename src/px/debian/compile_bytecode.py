"""A script that compiles the files named on standard input into one archive.  A base's own interpreter runs it.

Each line of input is the path in the image, a tab, and the file to read.  The output has, for each file that compiles,
the path and the content of its .pyc, each after its length as four bytes.  Python normally compares a .pyc with the
time of its source.  All files of an image have the same time, so these .pyc files are never checked (PEP 552).
"""

import importlib.util
import marshal
import sys

# Later formats of marshal also record which objects are shared, and that depends on what else this process has
# loaded. Format 2 depends on the code alone. It is a fifth larger, and Python loads it just the same.
FORMAT = 2
# Flags of a .pyc (PEP 552): bit 0 means that it has the hash of its source, bit 1 (not set) that Python checks it.
HEAD = importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little")

with open(sys.argv[1], "wb") as out:
    for line in sys.stdin.buffer.read().decode("utf-8").splitlines():
        path, _, source_file = line.partition("\t")
        with open(source_file, "rb") as f:
            source = f.read()
        try:
            # The level is given here, so that neither -O nor PYTHONOPTIMIZE can change it.
            code = compile(source, "/" + path, "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, ValueError):
            continue  # templates and test data that only look like modules
        content = HEAD + importlib.util.source_hash(source) + marshal.dumps(code, FORMAT)
        name = importlib.util.cache_from_source(path, optimization="").encode("utf-8")
        out.writelines(len(part).to_bytes(4, "little") + part for part in (name, content))
