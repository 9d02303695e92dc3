"""Attention: kernels, their separable expansions, and the drift they cause on the edges of a mesh."""
