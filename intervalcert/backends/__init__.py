"""Number systems: the protocol and its law, the registry, and one module for each."""
