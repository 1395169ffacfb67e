"""`jax.experimental.colocated_python.serialization`: only to be imported; nothing leaves this process."""

DeviceList = tuple
