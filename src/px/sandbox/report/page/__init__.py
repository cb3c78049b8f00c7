"""Reports as pages: one file each, without a network, for a browser, a printer and a keyboard."""
