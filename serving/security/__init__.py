"""Who may do what, and how much of it: API keys, scopes, limits, origins."""
