"""Auxiliary variables (P2): labels that tokens carry, and what attention makes of them.

    h((x, ξ), (y, ζ)) = b(ξ, ζ) f(⟨Q_ξ x, A Q_ζ y⟩),   Q_ξ orthogonal, b symmetric

`frames` Q are those of rope, rope_general and prefix; `bias` b that of toeplitz and distance_bias.
"""
