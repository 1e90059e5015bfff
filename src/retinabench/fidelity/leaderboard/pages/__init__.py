"""What a fidelity board shows: its tables, its figures and its page."""
