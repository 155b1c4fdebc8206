"""Other benchmarks' own files (BFCL, ACEBench), read into the data contract."""
