"""The arguments of a query: the substitution parameters of TPC-H (2.4), drawn in CAB's order."""

from __future__ import annotations

from bench.cab_lh.mersenne import Mersenne

Argument = int | float | str

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
#: In TPC-H's order, each with its region.
NATIONS = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4)),
    *(("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2)),
    *(("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0)),
    *(("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3)),
    *(("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3)),
    ("UNITED STATES", 1),
)
_SIZES = ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
_FINISHES = ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
_METALS = ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
_BOXES = ("SM", "LG", "MED", "JUMBO", "WRAP")
_BOX_KINDS = ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
_COLORS = (
    *("almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue"),
    *("blush", "brown", "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral"),
    *("cornflower", "cornsilk", "cream", "cyan", "dark", "deep", "dim", "dodger", "drab"),
    *("firebrick", "floral", "forest", "frosted", "gainsboro", "ghost", "goldenrod", "green"),
    *("grey", "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender", "lawn", "lemon"),
    *("light", "lime", "linen", "magenta", "maroon", "medium", "metallic", "midnight", "mint"),
    *("misty", "moccasin", "navajo", "navy", "olive", "orange", "orchid", "pale", "papaya"),
    *("peach", "peru", "pink", "plum", "powder", "puff", "purple", "red", "rose", "rosy", "royal"),
    *("saddle", "salmon", "sandy", "seashell", "sienna", "sky", "slate", "smoke", "snow"),
    *("spring", "steel", "tan", "thistle", "tomato", "turquoise", "violet", "wheat", "white"),
    *("yellow"),
)
_WORDS = (
    ("special", "pending", "unusual", "express"),
    ("packages", "requests", "accounts", "deposits"),
)


class Refresh:
    """Which orders the 23rd query moves next: a thousandth of all, from the highest key down.

    TPC-H gives orders 8 of each 32 keys. The query adds 8 to the keys of a range, so after four
    rounds over all ranges the keys are the first ones again. Below scale factor 0.0054 there are
    fewer than a thousand groups of 32.
    """

    def __init__(self, scale_factor: float) -> None:
        highest = 1 + int(scale_factor * 1_500_000) * 4
        self.groups = 1 + highest // 32
        self.parts = min(1000, self.groups)
        self.part, self.round = self.parts, 0

    def following(self) -> tuple[int, int, int, int]:
        """The first key, the key behind the last, and the eight of each 32 that are deleted."""
        first, behind = (self.groups * part // self.parts for part in (self.part - 1, self.part))
        eight = self.round * 8
        self.part -= 1
        if self.part == 0:
            self.part, self.round = self.parts, (self.round + 1) % 4
        return first * 32, behind * 32, eight, eight + 7


def arguments_of(
    number: int, scale_factor: float, random: Mersenne, refresh: Refresh
) -> tuple[Argument, ...]:
    """One query's arguments."""
    one_of, whole = random.one_of, random.whole
    match number:
        case 1:
            return (whole(60, 120),)
        case 2:
            return whole(1, 50), one_of(_METALS), one_of(REGIONS)
        case 3:
            return one_of(_SEGMENTS), f"1995-03-{whole(1, 31):02}"
        case 4 | 15:
            return (_month(whole(0, 57)),)
        case 5:
            return one_of(REGIONS), _year(random)
        case 6:
            return _year(random), whole(2, 9), whole(24, 25)
        case 7:
            return one_of(NATIONS)[0], one_of(NATIONS)[0]
        case 8:
            nation, region = one_of(NATIONS)
            kind = f"{one_of(_SIZES)} {one_of(_FINISHES)} {one_of(_METALS)}"
            return nation, REGIONS[region], kind
        case 9:
            return (one_of(_COLORS),)
        case 10:
            return (_month(whole(1, 24)),)
        case 11:
            return one_of(NATIONS)[0], scale_factor
        case 12:
            return (*_two_modes(random), _year(random))
        case 13:
            return one_of(_WORDS[0]), one_of(_WORDS[1])
        case 14:
            return (_month(whole(0, 59)),)
        case 16:
            brand, kind = _brand(random), f"{one_of(_SIZES)} {one_of(_FINISHES)}"
            return (brand, kind, *_different(random, 8, 1, 50))
        case 17:
            return _brand(random), f"{one_of(_BOXES)} {one_of(_BOX_KINDS)}"
        case 18:
            return (whole(312, 315),)
        case 19:
            brands = [_brand(random) for _ in range(3)]
            return (*brands, whole(1, 10), whole(10, 20), whole(20, 30))
        case 20:
            return one_of(_COLORS), _year(random), one_of(NATIONS)[0]
        case 21:
            return (one_of(NATIONS)[0],)
        case 22:
            return _different(random, 7, 10, 34)
        case 23:
            return refresh.following()
        case _:
            raise ValueError(f"there are queries 1 to 23, and no {number}")


def _year(random: Mersenne) -> str:
    return f"{random.whole(1993, 1997)}-01-01"


def _month(months: int) -> str:
    return f"{1993 + months // 12}-{1 + months % 12:02}-01"


def _brand(random: Mersenne) -> str:
    return f"Brand#{random.whole(1, 5)}{random.whole(1, 5)}"


def _two_modes(random: Mersenne) -> tuple[str, str]:
    while (first := random.one_of(_MODES)) == (second := random.one_of(_MODES)):
        pass
    return first, second


def _different(random: Mersenne, count: int, least: int, most: int) -> tuple[int, ...]:
    found: list[int] = []
    while len(found) < count:
        one = random.whole(least, most)
        if one not in found:
            found.append(one)
    return tuple(found)
