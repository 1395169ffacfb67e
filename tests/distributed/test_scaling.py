"""Scaling models: fits recover what measurements were made of, and predictions are sums that hand calculation gives."""

from __future__ import annotations

from typing import Any

import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.compiler.step_costs import Cost, ProcessCost
from tinyxla.distributed.scaling import Network, Prediction, Processor, collective, predict
from tinyxla.errors import ArgumentError
from tinyxla.ops.distributed.communication import ALGORITHMS, Communication

NETWORK = Network(2e-6, 1e-10, 3e-10)
PROCESSOR = Processor(1e-6, 1e-10, 2e-11)
SIZES = (16, 4096, 1 << 18, 1 << 22)


def measurements(network: Network, counts: tuple[int, ...] = (2, 4)) -> list[tuple[Communication, float]]:
    costs = [collective(kind, size, count) for kind in ALGORITHMS for size in SIZES for count in counts]
    return [(x, network.seconds(x)) for x in costs]


def alone(kernels: int, bytes_read: int, operations: int, transcendentals: int = 0) -> ProcessCost:
    return ProcessCost(1, kernels, Cost(bytes_read, 0, operations, transcendentals), Communication(), ())


# --- fits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [NETWORK, Network(1e-4, 1e-9, 0.0), Network(0.0, 1e-9, 1e-9)])
def test_the_fit_of_a_network_recovers_it(network: Network) -> None:
    assert Network.fit(measurements(network)) == pytest.approx(network, rel=1e-6, abs=1e-15)


def test_the_fit_of_a_network_is_near_noisy_measurements() -> None:
    noisy = [(x, seconds * (1.2 if k % 2 else 0.8)) for k, (x, seconds) in enumerate(measurements(NETWORK))]
    fitted = Network.fit(noisy)
    for x, seconds in measurements(NETWORK):
        assert 0.6 < fitted.seconds(x) / seconds < 1.6


def test_no_fitted_time_is_negative() -> None:
    """Where long messages seem to take no longer than short ones, bytes are free."""
    rows = [(collective("collective-permute", size, 2), seconds) for size, seconds in ((8, 2e-6), (8000, 1e-6))]
    fitted = Network.fit(rows)
    assert fitted.latency > 0
    assert fitted.seconds_per_byte == fitted.seconds_per_reduced_byte == 0


def test_the_fit_of_a_processor_recovers_it() -> None:
    costs = [alone(2, 1000, 10), alone(2, 10, 100000), alone(5, 10**6, 10**6), alone(3, 10**5, 0, 1000)]
    fitted = Processor.fit([(x, PROCESSOR.seconds(x.cost, x.kernels)) for x in costs])
    assert fitted == pytest.approx(PROCESSOR, rel=1e-6)


def test_fits_need_measurements() -> None:
    with pytest.raises(ArgumentError, match=r"Network\.fit: there must be at least one"):
        Network.fit([])
    with pytest.raises(ArgumentError, match=r"Processor\.fit: there must be at least one"):
        Processor.fit([])
    with pytest.raises(ArgumentError, match=r"collective: kind must be one of all-reduce, .*but is 'gather'"):
        collective("gather", 8, 2)


# --- predictions ------------------------------------------------------------------------------------------------------


def mean_of_rows(count: int, rows: int) -> Prediction:
    mesh = tx.sharding.AbstractMesh((count,), ("x",))
    x = tx.ShapeDtypeStruct((rows, 1024), "float32", sharding=tx.NamedSharding(mesh, tx.P("x")))
    return predict(tx.jit(lambda x: jnp.sum(x, 0)).lower(x), PROCESSOR, NETWORK)


def test_a_prediction_is_what_hand_calculation_gives() -> None:
    """Four processes sum 256 rows each, and then all-reduce 4 KB by Rabenseifner's algorithm."""
    found = mean_of_rows(4, 1024)
    size = 4 * 1024
    others = size * 3 // 4
    assert found.processes == 4
    assert found.communication == pytest.approx(4 * 2e-6 + 2 * others * 1e-10 + others * 3e-10)
    kernels, cost = found.cost.kernels, found.cost.cost
    assert found.computation == pytest.approx(kernels * 1e-6 + cost.bytes * 1e-10 + cost.operations * 2e-11)
    assert 257 * size <= cost.bytes <= 1.1 * 257 * size
    assert 255 * 1024 <= cost.operations <= 1.1 * 256 * 1024
    assert found.seconds == found.computation + found.communication
    assert str(found).startswith("4 processes: ")


def test_strong_scaling_ends_where_messages_take_longer_than_computing() -> None:
    times = {count: mean_of_rows(count, 4096) for count in (1, 2, 4, 16, 64, 256, 1024)}
    computation = [x.computation for x in times.values()]
    communication = [x.communication for x in times.values()]
    assert computation == sorted(computation, reverse=True)
    assert communication == sorted(communication)
    assert communication[0] == 0
    assert times[16].seconds < times[1].seconds / 8
    assert times[1024].communication > times[1024].computation


def test_weak_scaling_grows_with_the_logarithm() -> None:
    times = [mean_of_rows(count, 64 * count) for count in (2, 4, 8, 16, 1024)]
    assert len({x.computation for x in times}) == 1
    assert [x.cost.communication.messages for x in times] == [2, 4, 6, 8, 20]


def test_slower_networks_take_longer() -> None:
    cost: Any = mean_of_rows(16, 4096).cost.communication
    for field in Network._fields:
        slower = NETWORK._replace(**{field: 2 * getattr(NETWORK, field)})
        assert slower.seconds(cost) > NETWORK.seconds(cost)
