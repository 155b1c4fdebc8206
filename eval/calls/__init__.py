"""Suggested calls: Tool, Param and AST, compared and scaled."""
