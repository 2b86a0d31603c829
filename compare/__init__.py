"""The evidence: a harness that tries to catch intervalcert, and what people run instead, being wrong.

``python -m compare NAME …`` with names among cross, seed, unsound, attack, gradients, gains, convolutions, bench, or
all of these; or liresnet, edges, hunt. Each part is a module with a function ``run(setting) -> Outcome``. intervalcert
is used by its public names, but where a part looks at something inside on purpose, and says so: to enclose a Jacobian,
to time one step, to break it (`controls`).
"""

import os

# Times are given for one core. BLAS reads this when numpy is imported, which is after this.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
