"""Operations that call the host: callbacks, custom calls, and the targets of XLA's custom calls."""
