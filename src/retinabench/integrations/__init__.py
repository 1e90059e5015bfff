"""Hooks into the trainings and trackers of other libraries."""
