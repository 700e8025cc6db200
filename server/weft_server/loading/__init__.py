"""Makes a model of a bundle, and proves it before anybody may ask it."""
