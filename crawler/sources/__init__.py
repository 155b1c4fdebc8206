"""Where servers are found: one small class for each source, behind the interface of `base`."""
