"""`jax.experimental.multihost_utils`."""


def reached_preemption_sync_point(step_id):
    """Whether all processes are to save now, since one is about to be stopped: there is no service here that tells."""
    return False
