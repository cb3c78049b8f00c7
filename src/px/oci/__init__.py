"""OCI images: layers as reproducible tar archives, blobs, layouts, archives and registries."""
