"""Occlusion of annotated lesions: what removing them does to a model's probability and its uncertainty."""
