"""Programs of many processes beside JAX's over its CPU collectives (gloo), and collective operations beside mpi4py's
own calls: `python -m benchmarks.processes`."""
