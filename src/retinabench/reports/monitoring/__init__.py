"""The monitor in the terminal and as one page."""
