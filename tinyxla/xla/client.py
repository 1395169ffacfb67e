"""The host's side of transfers: infeeds, outfeeds, and channels of SendToHost and RecvFromHost, of one client that all
programs of the process share. `Client` says how they work."""

from __future__ import annotations

from tinyxla.host_queues import Client as Client, Source as InfeedSource, client

transfer_to_infeed = client.transfer_to_infeed
transfer_from_outfeed = client.transfer_from_outfeed
transfer_to_channel = client.transfer_to_channel
transfer_from_channel = client.transfer_from_channel
infeed_source = client.infeed_source
clear_transfers = client.clear_transfers

__all__ = [
    "Client",
    "InfeedSource",
    "clear_transfers",
    "client",
    "infeed_source",
    "transfer_from_channel",
    "transfer_from_outfeed",
    "transfer_to_channel",
    "transfer_to_infeed",
]
