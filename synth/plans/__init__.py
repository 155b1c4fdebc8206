"""Calls in several steps: requests whose gold is a graph of calls (MCPToolBench++, arXiv 2508.07575, section 2)."""
