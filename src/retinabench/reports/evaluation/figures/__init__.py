"""The figures of the evaluation page: drawings, their panels, and the points that a reader can point at."""
