"""Alpine without Alpine's tools: signed indexes, versions, dependencies and .apk files."""
