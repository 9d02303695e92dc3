"""Quantities of P1's analysis: stationary states and the energy minimum."""
