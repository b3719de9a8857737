"""The gateway answers what clients have once sent as it has answered them.

``python -m tests.contract.serve.record`` records them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.contract.serve.gateway import serving
from tests.contract.serve.record import CLIENTS, RECORDED, new_lake
from tests.support.recorded import Exchange, Player, recorded


@pytest.mark.cases(None)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_gateway_answers_a_recorded_client_as_it_did(client: str, tmp_path: Path) -> None:
    exchanges = recorded(RECORDED / f"{client}.jsonl")
    assert len(exchanges) > 10
    with new_lake(tmp_path / "lake") as lake, serving(lake) as gateway:

        def ask(exchange: Exchange) -> requests.Response:
            return requests.request(
                exchange.method,
                gateway.uri + exchange.path,
                data=exchange.body.encode(),
                headers=exchange.headers,
                timeout=30,
            )

        player = Player(ask)
        for number, exchange in enumerate(exchanges):
            answer = player.play(exchange)
            about = f"{number}: {exchange.method} {exchange.path}: {answer.text[:500]}"
            assert answer.status_code == exchange.status, about
        assert not lake.doctor().findings
