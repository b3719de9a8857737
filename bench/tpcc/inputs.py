"""What the terminals enter (clauses 2.4.1 to 2.8.1) and in which order (5.2.4.2), all seeded."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from random import Random

from bench.tpcc.schema import Scale
from bench.tpcc.values import OF_CUSTOMER, OF_ITEM, OF_LAST, Constants, last_name, nurand

#: Cards of each kind in a hundred.
MIX = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an order: an item, the warehouse that supplies it, and how many."""

    i_id: int
    supply_w_id: int
    quantity: int


@dataclass(frozen=True, slots=True)
class NewOrder:
    """``lines`` end with an item that there is not where the transaction is to roll back."""

    w_id: int
    d_id: int
    c_id: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Payment:
    """``customer`` is a number, or a last name."""

    w_id: int
    d_id: int
    c_w_id: int
    c_d_id: int
    customer: int | str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """``customer`` is a number, or a last name."""

    w_id: int
    d_id: int
    customer: int | str


@dataclass(frozen=True, slots=True)
class Delivery:
    """For all districts of a warehouse."""

    w_id: int
    carrier_id: int


@dataclass(frozen=True, slots=True)
class StockLevel:
    """How many items of the last orders are below a threshold."""

    w_id: int
    d_id: int
    threshold: int


Input = NewOrder | Payment | OrderStatus | Delivery | StockLevel


@dataclass
class Terminal:
    """Enters transactions; its warehouse, and its district for stock levels, stay the same."""

    number: int
    scale: Scale
    constants: Constants
    random: Random
    rolled_back_percent: int

    @property
    def w_id(self) -> int:
        return self.number % self.scale.warehouses + 1

    @property
    def d_id(self) -> int:
        return self.number // self.scale.warehouses % self.scale.districts + 1

    def enter(self, kind: str) -> Input:
        """The next transaction of a kind."""
        match kind:
            case "new_order":
                return self._new_order()
            case "payment":
                return self._payment()
            case "order_status":
                return OrderStatus(self.w_id, self._district(), self._customer())
            case "delivery":
                return Delivery(self.w_id, self.random.randint(1, 10))
            case _:
                return StockLevel(self.w_id, self.d_id, self.random.randint(10, 20))

    def _new_order(self) -> NewOrder:
        count = self.random.randint(5, 15)
        lines = [self._line() for _ in range(count)]
        if self.random.random() * 100 < self.rolled_back_percent:
            lines[-1] = Line(self.scale.items + 1, self.w_id, lines[-1].quantity)
        c_id = self._nurand(OF_CUSTOMER, 1, self.scale.customers, self.constants.customer)
        return NewOrder(self.w_id, self._district(), c_id, tuple(lines))

    def _line(self) -> Line:
        i_id = self._nurand(OF_ITEM, 1, self.scale.items, self.constants.item)
        supply = self._elsewhere() if self.random.random() < 0.01 else self.w_id
        return Line(i_id, supply, self.random.randint(1, 10))

    def _payment(self) -> Payment:
        d_id = self._district()
        c_w_id, c_d_id = self.w_id, d_id
        if self.scale.warehouses > 1 and self.random.random() < 0.15:
            c_w_id, c_d_id = self._elsewhere(), self._district()
        amount = Decimal(self.random.randint(100, 500_000)).scaleb(-2)
        return Payment(self.w_id, d_id, c_w_id, c_d_id, self._customer(), amount)

    def _customer(self) -> int | str:
        if self.random.random() < 0.6:
            most = self.scale.names - 1
            return last_name(self._nurand(OF_LAST, 0, most, self.constants.last))
        return self._nurand(OF_CUSTOMER, 1, self.scale.customers, self.constants.customer)

    def _district(self) -> int:
        return self.random.randint(1, self.scale.districts)

    def _elsewhere(self) -> int:
        """Another warehouse; the same where there is no other."""
        others = [w for w in range(1, self.scale.warehouses + 1) if w != self.w_id]
        return self.random.choice(others) if others else self.w_id

    def _nurand(self, a: int, low: int, high: int, c: int) -> int:
        return nurand(self.random.randint(0, a), self.random.randint(low, high), low, high, c)


def deck(count: int, random: Random) -> list[str]:
    """``count`` cards in the mix, shuffled; one of each kind at least where there are five."""
    due = {kind: share * count / 100 for kind, share in MIX.items()}
    cards = {kind: max(int(share), 1) for kind, share in due.items()}
    while sum(cards.values()) < count:
        cards[max(MIX, key=lambda kind: due[kind] - cards[kind])] += 1
    while sum(cards.values()) > count:
        several = [kind for kind in MIX if cards[kind] > 1] or [k for k in MIX if cards[k]]
        cards[max(several, key=lambda kind: cards[kind] - due[kind])] -= 1
    found = [kind for kind, number in cards.items() for _ in range(number)]
    random.shuffle(found)
    return found
