"""What an evaluation shows: the worth of a model, and the facts of the verdict."""
