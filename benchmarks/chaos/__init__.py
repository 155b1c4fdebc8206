"""Parts of the fault bench (`benchmarks/faults.py`): a real Toolscout, real upstreams, real trouble."""
