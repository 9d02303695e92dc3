"""What P1 prints (arXiv 2605.07772, as its public summary has it): 64 tokens, circle, T = 80; λ₁ is not printed."""

from __future__ import annotations

__all__ = ["BAG_OF_WORDS", "DIVERGENCES", "FITTED_RATES", "PHASES", "WIDTHS"]

# Experiment → setting → column → text.
PHASES: dict[str, dict[str, dict[str, str]]] = {
    "no_training": {"λ₂ = 0.65": {"phases": "one cluster, no escape"}},
    "align": {
        "λ₂ = 0.2": {"phases": "three phases", "displacement": "≈ 1.55", "rate": "0.19", "R_rho": "0.18"},
        "λ₂ = 0.65": {"phases": "three phases", "displacement": "≈ 1.55", "rate": "0.08", "R_rho": "0.07"},
        "λ₂ = 0.8": {"phases": "plateau weaker", "displacement": "≈ 1.55", "rate": "0.03", "R_rho": "0.02"},
    },
    "seeds": {
        "20 seeds": {
            "phases": "20/20",
            "plateau_width": "71.2",
            "displacement": "1.554 ± 0.010",
            "rate": "0.246 ± 0.007",
        }
    },
    "noise": {
        "ε = 0": {"phases": "20/20"},
        "ε = 0.0001": {"phases": "59/60 together", "plateau_width": "70–71"},
        "ε = 0.001": {"phases": "59/60 together", "plateau_width": "70–71"},
        "ε = 0.01": {"phases": "59/60 together", "plateau_width": "70–71"},
        "ε = 0.1": {"phases": "plateau 0/20, escape 20/20"},
    },
    "depth": {
        "T = 40": {"initial_width": "≈ 2.67", "plateau_width": "32.0", "final_width": "5.33"},
        "T = 80": {"initial_width": "≈ 2.67", "plateau_width": "71.2", "final_width": "6.15"},
        "T = 120": {"initial_width": "≈ 2.67", "plateau_width": "109.7", "final_width": "7.62"},
    },
    "tokens": {f"N = {n}": {"phases": "60/60 together"} for n in (32, 64, 128)},
    "regularization": {
        "λ_reg = 0": {"phases": "20/20"},
        "λ_reg = 0.01": {"phases": "20/20", "displacement": "1.560 ± 0.008"},
    },
}

# κ → Δθ, fitted rate, R_ρ.
BAG_OF_WORDS = {2.0: ("0.763 ± 0.343", "2.10", "2.15"), 10.0: ("0.169 ± 0.006", "0.35", "0.38")}

# The same as numbers, for figures. λ₂ → fitted rate, R_ρ; T → initial, final width; κ → Δθ, its standard deviation.
FITTED_RATES = {0.2: (0.19, 0.18), 0.65: (0.08, 0.07), 0.8: (0.03, 0.02)}
WIDTHS = {40.0: (2.67, 5.33), 80.0: (2.67, 6.15), 120.0: (2.67, 7.62)}
DIVERGENCES = {2.0: (0.763, 0.343), 10.0: (0.169, 0.006)}
