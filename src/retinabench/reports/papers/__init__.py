"""The tables and figures of the published papers, from predictions files alone."""
