"""Entries that take no gradients of a network: exact samplers and networks of infinite width."""
