"""`jax.experimental.topologies`: the devices that there are."""

from tinyxla.jax.devices.topologies import (
    TopologyDescription as TopologyDescription,
    get_attached_topology as get_attached_topology,
    get_topology_desc as get_topology_desc,
    make_mesh as make_mesh,
)
