"""From archives and label files to a prepared folder."""
