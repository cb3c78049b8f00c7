"""What commands and the Metaflow extension share: the way to a built env or sandbox, running, packing, the log."""
