"""A model behind an address: vLLM or llama.cpp, started and watched."""
