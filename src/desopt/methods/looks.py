"""How methods look in every figure.

Okabe and Ito's colours, told apart by most colour-blind eyes; dash and marker differ as well,
so that a figure survives a grey printer.
"""

from __future__ import annotations

Look = tuple[str, str, str]  # colour, dash and marker, as matplotlib writes them

LOOKS: dict[str, Look] = {
    "des-mr": ("#D55E00", "-", "o"),
    "des-mg": ("#E69F00", "--", "s"),
    "des": ("#000000", "-", "^"),
    "fed-zo-gd": ("#0072B2", "-.", "D"),
    "fed-zo-sgd": ("#56B4E9", "--", "v"),
    "zo-signsgd": ("#009E73", ":", "P"),
    "es-csa": ("#CC79A7", "-.", "X"),
}
