"""Options by their names: what is deltalake's alone, and what is of one account of Azure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakevilla.errors import InvalidOperation

#: What deltalake takes beyond what a backend knows: its own locking, renames
#: and retries, which LakeVilla has no part in.
DELTALAKE_ONLY = re.compile(
    r"(max_retries|retry_timeout|backoff_config\..*|backoff\..*|object_store_concurrency_limit"
    r"|mount_allow_unsafe_rename|aws_s3_allow_unsafe_rename|allow_unsafe_rename"
    r"|aws_s3_locking_provider|delta_dynamo.*|dynamo_.*|aws_.*_dynamodb|aws_force_credential_load"
    r"|aws_(s3|sts)_pool_idle_timeout_seconds|aws_s3_get_internal_server_error_retries)"
)
UNSAFE_WRITERS = {
    "aws_s3_allow_unsafe_rename": "true",
    "allow_unsafe_rename": "true",
    "aws_s3_locking_provider": "dynamodb",
}
_ACCOUNT_NAME = ("azure_storage_account_name", "account_name")
#: Of one account of Azure, not of whoever asks.
_ACCOUNT_SECRETS = frozenset(
    {
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "access_key",
        "account_key",
        "master_key",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "sas_key",
        "sas_token",
    }
)


def of_account(account: str, config: Mapping[str, str]) -> dict[str, str]:
    """The options for a place that names its account itself, so without the account's name.

    Raises
    ------
    InvalidOperation
        They hold a key or a token of another account.
    """
    named = [config[option] for option in _ACCOUNT_NAME if option in config]
    secrets = [option for option in config if option in _ACCOUNT_SECRETS]
    if secrets and any(name != account for name in named):
        raise InvalidOperation(
            f"the place is in the account {account!r}, and {secrets[0]} in storage_options is of "
            f"the account {named[0]!r}: correct one of them, or give credentials for both "
            "accounts (a client id and secret)"
        )
    return {option: value for option, value in config.items() if option not in _ACCOUNT_NAME}
