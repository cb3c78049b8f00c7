"""Alpine packages to file trees, without apk: signed indexes, versions, dependencies and .apk files."""
