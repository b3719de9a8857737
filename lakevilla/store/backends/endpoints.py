"""Endpoints of stores, and the names of their options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakevilla.errors import InvalidOperation

# -------------------- endpoints
#
# The endpoint of a store, as storage options and the environment name it.
#
# It is checked before the backend's client gets it: that client silently accepts a text which is
# no URL, and panics at the first request.
# https://github.com/developmentseed/obstore/issues/431


#: By provider, the options that name an endpoint. The first that is given counts.
_ENDPOINTS = {
    "s3": ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
    "az": ("azure_storage_endpoint", "azure_endpoint", "endpoint"),
}
_PREFIXES = {"s3": "AWS_", "az": "AZURE_"}
_ALLOWS_HTTP = {"s3": ("aws_allow_http", "allow_http"), "az": ("azure_allow_http", "allow_http")}
_TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})


def check_endpoints(
    provider: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Refuse an endpoint that is no URL, or plain HTTP that was not allowed.

    Parameters
    ----------
    provider : {"s3", "gs", "az"}
    options : Mapping
        Storage options, their names in lower case.
    environment : Mapping
        The values that count where the options have none.

    Raises
    ------
    InvalidOperation
        The message names the option or variable, and what to write.
    """
    given = _given(provider, options, environment)
    for source, endpoint in given:
        _check_url(source, endpoint)
    if given and not _allows_http(provider, options, environment):
        source, endpoint = given[0]
        if urlsplit(endpoint).scheme.lower() == "http":
            raise InvalidOperation(
                f"{source} is {endpoint!r}, which is plain HTTP, and that is off: for a local "
                f"endpoint pass {_PREFIXES[provider]}ALLOW_HTTP='true' in storage_options, or set "
                "it in the environment; for any other write https://"
            )


def _given(
    provider: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the sources that name an endpoint, and the endpoints; the first counts."""
    names = _ENDPOINTS.get(provider, ())
    given = [(f"storage option {name}", options[name]) for name in names if name in options]
    return given or [
        (f"the environment's {name.upper()}", environment[name.upper()])
        for name in names
        if name.startswith(_PREFIXES[provider].lower()) and name.upper() in environment
    ]


def shown_endpoint(
    provider: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> str | None:
    """Return the endpoint for messages, as scheme, host and port: the rest may hold a secret."""
    given = _given(provider, options, environment)
    if not given:
        return None
    url = urlsplit(given[0][1])
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def endpoint_options(
    provider: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the options, with an endpoint under the name that no variable can overrule."""
    # https://github.com/developmentseed/obstore/issues/753
    found = dict(options)
    strongest = _ENDPOINTS.get(provider, ("",))[0]
    if strongest.upper() in environment:
        for name in _ENDPOINTS[provider]:
            if name in options:
                found[strongest] = found.pop(name)
                break
    return found


def _check_url(source: str, endpoint: str) -> None:
    try:
        url = urlsplit(endpoint)
        url.port  # noqa: B018 (raises where it is none)
        host = url.hostname
    except ValueError:
        url, host = urlsplit(""), None
    whole = not any(character.isspace() or not character.isprintable() for character in endpoint)
    if url.scheme.lower() not in ("http", "https") or not host or not whole:
        shown = repr(endpoint) if "@" not in endpoint else "no URL"  # it may hold a secret
        raise InvalidOperation(
            f"{source} is {shown}: write a URL with its scheme, such as https://host:9000, or "
            "leave it out for the provider's own"
        )


def _allows_http(provider: str, options: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    for name in _ALLOWS_HTTP[provider]:
        if name in options:
            return options[name].lower() in _TRUE
    return environment.get(f"{_PREFIXES[provider]}ALLOW_HTTP", "").lower() in _TRUE


# -------------------- option names
#
# Options by their names: those of deltalake alone, and those of one account of Azure.


#: Options of deltalake beyond those that a backend knows: its own locking, renames
#: and retries, in which LakeVilla has no part.
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
#: Secrets of one account of Azure, not of the caller.
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
    """Return the options for a place that names its account itself, without the account's name.

    Raises
    ------
    InvalidOperation
        They hold a key or a token of another account.
    """
    named = [config[option] for option in _ACCOUNT_NAME if option in config]
    secrets = [option for option in config if option in _ACCOUNT_SECRETS]
    if secrets and any(name != account for name in named):
        raise InvalidOperation(
            f"the location is in the account {account!r}, and {secrets[0]} in storage_options is "
            f"of the account {named[0]!r}: correct one of them, or give credentials for both "
            "accounts (a client id and secret)"
        )
    return {option: value for option, value in config.items() if option not in _ACCOUNT_NAME}
