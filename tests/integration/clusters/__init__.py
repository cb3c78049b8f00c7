"""px on clusters: real ones, of two nodes on this machine."""
