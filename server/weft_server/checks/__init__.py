"""What is looked at before anything is served: settings, and the bundles of a repository."""
