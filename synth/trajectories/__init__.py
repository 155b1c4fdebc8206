"""Trajectories: the calls of rows are executed through ``invoke``, judged, answered and kept as records."""
