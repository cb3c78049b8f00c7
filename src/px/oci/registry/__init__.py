"""OCI registries: names of images, logging in, uploading, and documents attached to an image.

The protocol is https://github.com/opencontainers/distribution-spec.
"""
