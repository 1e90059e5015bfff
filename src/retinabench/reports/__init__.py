"""Pages, tables and figures; never imports torch."""
