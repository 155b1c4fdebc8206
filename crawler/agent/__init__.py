"""The web agent: reads marketplaces that have no API, by accessibility snapshots, with a model or without one."""
