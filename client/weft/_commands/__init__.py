"""The subcommands of the client: each one call of the SDK, printed."""
