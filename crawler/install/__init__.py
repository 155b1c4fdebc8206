"""Installing packages without running anything of them: npm with scripts off, wheels only from PyPI."""
