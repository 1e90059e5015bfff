"""A whole study in one command: methods x tuning criterion x seeds -> runs -> ensembles -> scores, tables, figures."""
