"""Fills the catalogue: discovers servers, deploys them in a sandbox, lists their tools."""
