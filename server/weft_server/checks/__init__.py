"""What is looked at before anything is served: the machine, the settings, and the bundles of a repository."""
