"""Who calls, and what they may: certificates, tokens and roles."""
