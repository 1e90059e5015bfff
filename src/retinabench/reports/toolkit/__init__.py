"""Shared figure style, tables and page parts."""
