"""A lane over a cache in blocks, which only a device has."""
