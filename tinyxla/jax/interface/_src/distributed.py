"""`jax._src.distributed`."""

from tinyxla.distributed import process_count, process_index


class _State:
    """The processes of this program: those of MPI, which have no client of a coordination service."""

    client = service = preemption_sync_manager = None
    process_id = property(lambda self: process_index())
    num_processes = property(lambda self: process_count())


global_state = _State()
