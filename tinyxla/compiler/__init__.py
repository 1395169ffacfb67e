"""The compiler: `pipeline` has its passes in three lists, over graphs, plans and kernels of the loop IR."""
