"""The N-token system behind the PDE: an independent witness that shares its definitions and not its discretisation."""
