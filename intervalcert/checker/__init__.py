"""A checker of certificates: the standard library, integers and fractions only; nothing of the rest of the package.

The folder may be copied and run by itself: ``python -m checker run.cert --model model.npz``. To be read in this order:

    model.py     what a model is: matrices of integers over a denominator; its exact values
    core.py      what is proved: norms, margins, decisions, and what holds near one input
    reading.py   models, outputs and inputs from files, exactly
    file.py      the certificate: members, claims, limits; what is accepted, line by line

Nothing in a certificate is believed. It holds guesses that make proofs short; each is checked where it is used.
"""
