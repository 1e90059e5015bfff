"""Verbs that decide: what a model may do in a clinic, under which guarantee, and whether it still holds."""
