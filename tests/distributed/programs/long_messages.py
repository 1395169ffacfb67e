"""`every_collective` where MPI counts to three at most: long arrays go in chunks, or as one element of a type."""

from __future__ import annotations

import numpy as np

from tests.distributed.programs import every_collective
from tinyxla.backends.numba.program import collectives
from tinyxla.ops.distributed import process_collectives
from tinyxla.runtime.mpi import calls, library

for module in (library, calls, process_collectives, collectives):
    module.MAX_COUNT = 3  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]
library._PAGE = 8  # pyright: ignore[reportPrivateUsage, reportConstantRedefinition]
every_collective.TYPES[:] = [np.dtype(x) for x in ("i1", "f4", "c16")]
every_collective.main()
