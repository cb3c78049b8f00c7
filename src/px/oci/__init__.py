"""OCI images: layers as deterministic tars, blobs, layouts, registries, bills of materials."""
