"""The campaigns: one module each, found by the driver; the package's docstring states what a module holds."""
