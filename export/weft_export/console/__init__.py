"""What a command shows and hears beside its work."""
