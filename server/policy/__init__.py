"""Which calls may be made: the policy file, what it decides, and what is kept of it."""
