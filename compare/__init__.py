"""The evidence: a harness that tries to catch intervalcert, and what people run instead, being wrong.

``python -m compare NAME`` with NAME one of cross, seed, unsound, attack, gradients, gains, bench, all. Each part is a
module with a function ``run(setting) -> Outcome``. Only public names of intervalcert are used.
"""

import os

# Times are given for one core. BLAS reads this when numpy is imported, which is after this.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
