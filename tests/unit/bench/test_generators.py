"""The generators of YCSB-LH draw the same numbers as the reference, ``site.ycsb:core:0.17.0``.

The reference draws by ``ThreadLocalRandom``. Its seed was set before each call, once to see the
random number and once for each generator.
"""

from __future__ import annotations

from collections import Counter

import pytest

from bench.ycsb_lh.generators import Interval, Latest, Scrambled, Zipfian, fnv64, key_of, zeta
from bench.ycsb_lh.workload import MIXES, Inserted, Stream

#: ``u``; then what a Zipfian generator of 1,000 items, a scrambled one of 1,051 and a latest one of
#: 1,000 draw.
GOLDEN = [
    (0.39190467076760016, 9, 480, 990),
    (0.10366272259635834, 0, 1027, 999),
    (0.5837256761772693, 42, 716, 957),
    (0.025651327087550357, 0, 801, 999),
    (0.16179967409906904, 1, 446, 998),
    (0.07184195151452, 0, 286, 999),
    (0.10513944119700203, 0, 244, 999),
    (0.22755014761588288, 2, 1050, 997),
    (0.634294631843856, 62, 714, 937),
    (0.713083050002061, 114, 173, 885),
    (0.224903849882641, 2, 899, 997),
    (0.028394398997132253, 0, 801, 999),
    (0.46577915357802335, 16, 416, 983),
    (0.7468282519043237, 147, 443, 852),
    (0.5362843972099598, 29, 85, 970),
    (0.10151826550461929, 0, 1027, 999),
    (0.9268180345596324, 577, 711, 422),
    (0.5343225745195993, 28, 607, 971),
    (0.36095126841939995, 7, 245, 992),
    (0.5205334343455531, 25, 488, 974),
    (0.5541651473336813, 33, 1010, 966),
    (0.49509035042180083, 21, 352, 978),
    (0.8400858908822071, 300, 675, 700),
    (0.21727652469080572, 2, 435, 997),
]


@pytest.mark.parametrize(("u", "zipfian", "scrambled", "latest"), GOLDEN)
def test_each_generator_draws_the_number_that_the_reference_draws(
    u: float, zipfian: int, scrambled: int, latest: int
) -> None:
    assert Zipfian(1000).at(u) == zipfian
    assert Scrambled(1051).at(u) == scrambled
    assert Latest(1000).at(u) == latest


@pytest.mark.parametrize(
    ("number", "hashed"),
    [
        (0, 6284781860667377211),
        (1, 8517097267634966620),
        (2, 1820151046732198393),
        (10, 2408371864701034737),
        (999, 2071219101098386137),
        (1000, 5952875239596136740),
        (123456789, 2350796791908741607),
        (9999999999, 3605131173811637474),
    ],
)
def test_keys_are_hashed_as_in_the_reference(number: int, hashed: int) -> None:
    assert fnv64(number) == hashed
    assert key_of(number) == f"user{hashed}"


@pytest.mark.parametrize(
    ("items", "total"),
    [
        (1, 1.0),
        (2, 1.5034777750283594),
        (10, 2.9561075165103636),
        (1000, 7.728953217284729),
        (100000, 12.778338062551246),
    ],
)
def test_zeta_is_summed_in_the_order_of_the_reference(items: int, total: float) -> None:
    assert zeta(items) == total


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0])
def test_client_intervals_are_equal_at_apart_0_and_disjoint_at_apart_1(apart: float) -> None:
    keys = [
        {Interval(1000, 4, apart).at(client, u / 997) for u in range(997)} for client in range(4)
    ]
    shared = keys[0] & keys[1]
    if apart == 0.0:
        assert len(shared) > 900
    elif apart == 1.0:
        assert not shared
    else:
        assert 0 < len(shared) < 300


@pytest.mark.parametrize("workload", MIXES)
def test_a_mix_has_its_shares_of_operations_and_uses_only_existing_records(workload: str) -> None:
    mix = MIXES[workload]
    inserted = Inserted(1000)
    found: Counter[str] = Counter()
    for operation in Stream("t", mix, 4000, 4000, "seven", 0, 1).operations(inserted):
        found[operation.kind] += 1
        if operation.kind == "insert":
            inserted.acknowledge(operation.number)
        else:
            assert 0 <= operation.number < inserted.count
    for kind in ("read", "update", "insert", "scan", "rmw"):
        # Five standard deviations of a binomial distribution at most.
        assert abs(found[kind] / 4000 - getattr(mix, kind)) < 0.04


def test_an_inserted_number_counts_once_all_smaller_ones_are_acknowledged() -> None:
    inserted = Inserted(10)
    assert [inserted.draw() for _ in range(3)] == [10, 11, 12]
    inserted.acknowledge(12)
    inserted.acknowledge(10)
    assert inserted.count == 11
    inserted.acknowledge(11)
    assert inserted.count == 13


def test_client_processes_insert_disjoint_numbers() -> None:
    of_each = [Inserted(10, client, 3) for client in range(3)]
    drawn = [[inserted.draw() for _ in range(4)] for inserted in of_each]
    assert sorted(number for numbers in drawn for number in numbers) == list(range(10, 22))
    for inserted, numbers in zip(of_each, drawn, strict=True):
        for number in numbers:
            inserted.acknowledge(number)
        assert [inserted.number(place) for place in range(10, inserted.count)] == numbers


@pytest.mark.parametrize(("apart", "least", "most"), [(0.0, 40, 50), (0.5, 10, 25), (1.0, 0, 0)])
def test_clients_use_the_same_records_as_often_as_their_intervals_overlap(
    apart: float, least: int, most: int
) -> None:
    drawn = [
        {
            operation.number
            for operation in Stream(
                "t", MIXES["A"], 400, 800, f"{client}", client, 2, apart
            ).operations(Inserted(50))
        }
        for client in range(2)
    ]
    assert least <= len(drawn[0] & drawn[1]) <= most


@pytest.mark.parametrize("u", [0.0, 0.3, 0.999999])
def test_generators_over_one_to_three_records_draw_existing_records(u: float) -> None:
    assert Latest(1).at(u) == Zipfian(1).at(u) == 0
    assert Latest(2).at(u) == 1
    assert Zipfian(2).at(u) == (0 if u * 1.5034 < 1 else 1)
    assert Latest(3).at(u) == 2 - Zipfian(2).at(u)
