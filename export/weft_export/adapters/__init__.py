"""From an adapter that was trained to one that a server takes beside its bundle."""
