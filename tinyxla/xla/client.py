"""The host's side of transfers: infeeds, outfeeds, and channels of SendToHost and RecvFromHost, of one client that all
programs of the process share. `Client` says how they work.

Source: "Infeed", "Outfeed", "Send" and "Recv" of the XLA documents; the names are those of XLA's clients.
"""

from __future__ import annotations

import itertools

from tinyxla.runtime.host_queues import Client as Client, Source as InfeedSource, client
from tinyxla.xla.dimension_numbers import ChannelHandle, ChannelType

_numbers = itertools.count(1)


def CreateChannelHandle() -> ChannelHandle:
    """A channel between two computations, or two replicas of one, whose number no other channel made here has.

    Returns:
        A channel.

    >>> from tinyxla.xla import CreateChannelHandle
    >>> first, second = CreateChannelHandle(), CreateChannelHandle()
    >>> first.type, first.handle == second.handle
    (<ChannelType.DEVICE_TO_DEVICE: 1>, False)
    """
    return ChannelHandle(next(_numbers), ChannelType.DEVICE_TO_DEVICE)


def CreateDeviceToHostChannelHandle() -> ChannelHandle:
    """A channel for `SendToHost`.

    Returns:
        A channel.

    >>> from tinyxla.xla import CreateDeviceToHostChannelHandle
    >>> CreateDeviceToHostChannelHandle().type
    <ChannelType.DEVICE_TO_HOST: 2>
    """
    return ChannelHandle(next(_numbers), ChannelType.DEVICE_TO_HOST)


def CreateHostToDeviceChannelHandle() -> ChannelHandle:
    """A channel for `RecvFromHost`.

    Returns:
        A channel.

    >>> from tinyxla.xla import CreateHostToDeviceChannelHandle
    >>> CreateHostToDeviceChannelHandle().type
    <ChannelType.HOST_TO_DEVICE: 3>
    """
    return ChannelHandle(next(_numbers), ChannelType.HOST_TO_DEVICE)


transfer_to_infeed = client.transfer_to_infeed
transfer_from_outfeed = client.transfer_from_outfeed
transfer_to_channel = client.transfer_to_channel
transfer_from_channel = client.transfer_from_channel
infeed_source = client.infeed_source
clear_transfers = client.clear_transfers

__all__ = [
    "Client",
    "CreateChannelHandle",
    "CreateDeviceToHostChannelHandle",
    "CreateHostToDeviceChannelHandle",
    "InfeedSource",
    "clear_transfers",
    "client",
    "infeed_source",
    "transfer_from_channel",
    "transfer_from_outfeed",
    "transfer_to_channel",
    "transfer_to_infeed",
]
