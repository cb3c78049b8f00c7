"""``px base lock``: read Debian's signed indexes, choose packages, pin them.  Building a base does not need this."""
