"""Makes instruction-call pairs and trajectories from the catalogue."""
