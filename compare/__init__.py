"""The evidence: a harness that tries to catch intervalcert, and what people run instead, being wrong.

``python -m compare NAME`` with NAME one of cross, seed, unsound, attack, bench, all. Each part is a module with
a function ``run(setting) -> Outcome``. Only public names of intervalcert are used.
"""
