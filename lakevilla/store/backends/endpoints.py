"""Endpoints of stores, and the names of their options."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from urllib.parse import urlsplit

from lakevilla.errors import InvalidOperation
from lakevilla.store.location import account_at, endpoint_of

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
    "gs": ("google_base_url", "base_url"),
}
#: By provider, what the names of its own options begin with; in capitals, those of the environment.
PREFIXES = {"s3": "aws_", "az": "azure_", "gs": "google_"}
_ALLOWS_HTTP = {
    provider: (f"{prefix}allow_http", "allow_http") for provider, prefix in PREFIXES.items()
}
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
    if provider == "az":
        _refuse_onelake(options, environment)
        _check_emulator(given, options, environment)
    if given and not _allows_http(provider, options, environment):
        source, endpoint = given[0]
        if urlsplit(endpoint).scheme.lower() == "http":
            raise InvalidOperation(
                f"{source} is {_public(endpoint)!r}, which is plain HTTP, and that is off: for "
                f"a local endpoint pass {PREFIXES[provider].upper()}ALLOW_HTTP='true' in "
                "storage_options, or set it in the environment; for any other write https://"
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
        if name.startswith(PREFIXES[provider]) and name.upper() in environment
    ]


def shown_endpoint(
    provider: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> str | None:
    """Return the endpoint for messages, as scheme, host and port: the rest may hold a secret."""
    given = [endpoint for _, endpoint in _given(provider, options, environment)]
    if provider == "az" and _is_set(_USES_EMULATOR, options, environment):
        given = [environment.get("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000")]
    if not given:
        return None
    url = urlsplit(given[0])
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def _public(endpoint: str) -> str:
    """Return an endpoint without what may be a password or a token."""
    url = urlsplit(endpoint)
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()


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
        # What it holds may be a secret.
        shown = repr(endpoint) if not set("@?={") & set(endpoint) else "no URL"
        raise InvalidOperation(
            f"{source} is {shown}: write a URL with its scheme, such as https://host:9000, or "
            "leave it out for the provider's own"
        )


def _refuse_onelake(options: Mapping[str, str], environment: Mapping[str, str]) -> None:
    if _is_set(_USES_ONELAKE, options, environment):
        account_at("onelake.blob.fabric.microsoft.com")
    for _, endpoint in _given("az", options, environment)[:1]:
        account_at(_host(endpoint))


def _check_emulator(
    given: list[tuple[str, str]], options: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    if given and _is_set(_USES_EMULATOR, options, environment):
        raise InvalidOperation(
            f"{given[0][0]} and azure_storage_use_emulator are given, and with the second the "
            "first would not count: leave one of them out"
        )
    for source, endpoint in given:
        url = urlsplit(endpoint)
        if _names_no_account(url.hostname or "") and not url.path.strip("/"):
            raise InvalidOperation(
                f"{source} is {_public(endpoint)!r}, and an emulator's endpoint ends with the "
                f"account's name: write {_public(endpoint).rstrip('/')}/{_EMULATOR}"
            )


def _names_no_account(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return True


def _allows_http(provider: str, options: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    for name in _ALLOWS_HTTP[provider]:
        if name in options:
            return options[name].lower() in _TRUE
    return environment.get(f"{PREFIXES[provider]}allow_http".upper(), "").lower() in _TRUE


# -------------------- option names
#
# Options by their names: those of deltalake alone, those of one account of Azure, and those that
# other libraries spell otherwise.


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
#: Kinds of credentials for Azure, in the order in which the client looks for them in options and
#: environment together.
_CREDENTIALS = (
    {"azure_storage_token", "bearer_token", "token"},
    {
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "access_key",
        "account_key",
        "master_key",
    },
    {"azure_federated_token_file", "federated_token_file"},
    {"azure_storage_client_secret", "azure_client_secret", "client_secret"},
    {"azure_storage_sas_key", "azure_storage_sas_token", "sas_key", "sas_token"},
    {"azure_use_azure_cli", "use_azure_cli"},
)
#: Secrets of one account of Azure, not of the caller.
_ACCOUNT_SECRETS = _CREDENTIALS[1] | _CREDENTIALS[4]


_EMULATOR = "devstoreaccount1"
_USES_ONELAKE = ("azure_use_fabric_endpoint", "use_fabric_endpoint")
_USES_EMULATOR = ("azure_storage_use_emulator", "object_store_use_emulator", "use_emulator")


def azure_account(storage_options: Mapping[str, object] | None) -> str | None:
    """Return the Azure account of containers named without one, by options or environment."""
    options = {str(name).lower(): str(value) for name, value in (storage_options or {}).items()}
    named = _account_named(options, os.environ)
    for _, endpoint in _given("az", options, os.environ)[:1]:
        account = account_at(_host(endpoint))
        if account is not None and named in (None, account.partition(".")[0]):
            return account
    if named is None and _is_set(_USES_EMULATOR, options, os.environ):
        return _EMULATOR
    return named


def of_account(
    account: str, config: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the options for a place that names its account itself, without the account's name.

    Raises
    ------
    InvalidOperation
        They, or the environment, hold an endpoint, a key or a token of another account, or the
        client would use the environment's credentials instead of theirs.
    """
    name = account.partition(".")[0]
    _refuse_stronger(config, environment)
    _refuse_others_secrets(name, config, environment)
    found = {option: value for option, value in config.items() if option not in _ACCOUNT_NAME}
    given = _given("az", config, environment)
    for source, endpoint in given[:1]:
        other = _account_behind(endpoint) or _account_named(config, environment)
        if other is not None and other != name:
            raise InvalidOperation(
                f"the location is in the account {name!r}, and {source} is of the account "
                f"{other!r}: correct one of them, or leave the endpoint out"
            )
    if "." in account and not given:
        found["azure_storage_endpoint"] = endpoint_of(account)
    return found


def _refuse_others_secrets(
    name: str, config: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Refuse the key or token of another account; one in the options comes before all others."""
    held = [option for option in config if option in _ACCOUNT_SECRETS]
    named, where = _account_named(config, {}), "in storage_options"
    if not held:
        held = [
            variable
            for variable in environment
            if variable.startswith("AZURE_") and variable.lower() in _ACCOUNT_SECRETS
        ]
        named, where = _account_named(config, environment), "of the environment"
    if held and named is not None and named != name:
        raise InvalidOperation(
            f"the location is in the account {name!r}, and {held[0]} {where} is of the account "
            f"{named!r}: correct one of them, or give credentials for both accounts (a client id "
            "and secret)"
        )


def _refuse_stronger(config: Mapping[str, str], environment: Mapping[str, str]) -> None:
    given = [names & config.keys() for names in _CREDENTIALS]
    first = next((rank for rank, names in enumerate(given) if names), 0)
    for names in _CREDENTIALS[:first]:
        for name in sorted(names):
            if name.startswith("azure_") and name.upper() in environment:
                raise InvalidOperation(
                    f"the client would use the environment's {name.upper()} instead of "
                    f"{min(given[first])} in storage_options: unset the variable, or leave the "
                    "option out"
                )


def _account_named(options: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    named = [options[option] for option in _ACCOUNT_NAME if option in options]
    name = named[0] if named else environment.get(_ACCOUNT_NAME[0].upper(), "")
    # Azure has lower case only, and so has the account of a location.
    return name.lower() or None


def _account_behind(endpoint: str) -> str | None:
    """Return the account whose blobs are at an endpoint of Azure's, or of an emulator."""
    host = _host(endpoint)
    account = account_at(host)
    if account is not None:
        return account.partition(".")[0]
    if _names_no_account(host):
        return urlsplit(endpoint).path.strip("/").partition("/")[0] or None
    return None


def _host(endpoint: str) -> str:
    try:
        return urlsplit(endpoint).hostname or ""
    except ValueError:
        return ""  # no URL, which is refused when a store is opened


def _is_set(
    names: Sequence[str], options: Mapping[str, str], environment: Mapping[str, str]
) -> bool:
    """Return whether a switch is on; the first name is that of the environment, too."""
    given = [options[name] for name in names if name in options]
    given = given or [environment.get(names[0].upper(), "")]
    return given[0].lower() in _TRUE


# -------------------- names of other libraries

#: pyiceberg's properties, and the storage options with the same meaning.
PYICEBERG = {
    "s3.endpoint": "aws_endpoint",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.anonymous": "aws_skip_signature",
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_token",
    "adls.tenant-id": "azure_storage_tenant_id",
    "adls.client-id": "azure_storage_client_id",
    "adls.client-secret": "azure_storage_client_secret",
    "adls.token": "azure_storage_token",
    "adls.anon": "azure_skip_signature",
    "gcs.oauth2.token": "google_bearer_token",
    "gcs.service.host": "google_base_url",
}
#: Hadoop's properties, which may be followed by the host of an account, likewise.
_HADOOP = {
    "fs.azure.account.key": "azure_storage_account_key",
    "fs.azure.sas": "azure_storage_sas_token",
    "fs.azure.account.oauth2.client.id": "azure_storage_client_id",
    "fs.azure.account.oauth2.client.secret": "azure_storage_client_secret",
    "fs.azure.account.oauth2.client.endpoint": "azure_storage_tenant_id",
    "fs.azure.account.oauth2.msi.tenant": "azure_storage_tenant_id",
    "fs.azure.account.oauth2.token.file": "azure_federated_token_file",
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint.region": "aws_region",
    "fs.s3a.endpoint": "aws_endpoint_url",
    "fs.gs.auth.service.account.json.keyfile": "google_service_account",
    "google.cloud.auth.service.account.json.keyfile": "google_service_account",
    "fs.gs.storage.root.url": "google_base_url",
}
#: adlfs's and DuckDB's names, whose text has the values of several options.
_CONNECTION_STRINGS = ("connection_string", "azure_storage_connection_string")
#: Names that a misspelt one may mean: those that the guides have.
_KNOWN = sorted(
    {
        *PYICEBERG.values(),
        *_HADOOP.values(),
        *_ACCOUNT_NAME[:1],
        *_USES_EMULATOR[:1],
        *(names[0] for names in (*_ENDPOINTS.values(), *_ALLOWS_HTTP.values())),
        "aws_endpoint_url",
        "azure_client_id",
        "azure_client_secret",
        "azure_storage_authority_host",
        "azure_tenant_id",
        "azure_use_azure_cli",
        "google_application_credentials",
        "google_service_account_key",
        "google_skip_signature",
    }
)


def advice_for(name: str) -> str:
    """Return what to do about an option that no backend knows, by its name in lower case."""
    if name in PYICEBERG:
        return f"it is pyiceberg's name of {PYICEBERG[name]}"
    if name.startswith(("adls.", "s3.", "client.", "gcs.")):
        return "it is a property of pyiceberg: use deltalake's names (docs/operating.md)"
    for begin, option in _HADOOP.items():
        if name.startswith(begin):
            return f"it is Hadoop's name of {option}"
    if name.startswith(("fs.", "spark.")):
        return "it is a property of Hadoop or Spark: use deltalake's names (docs/operating.md)"
    if name in _CONNECTION_STRINGS:
        return (
            "give the parts of a connection string as azure_storage_account_name, "
            "azure_storage_account_key and azure_storage_endpoint"
        )
    if name.startswith("catalog."):
        return "a catalog is given by catalogs={'name': {'uri': ...}}"
    near = get_close_matches(name, _KNOWN, 1, 0.8)
    meant = f"did you mean {near[0]}? " if near else ""
    for begin, guide in (("azure", "azure"), ("google", "gcs")):
        if name.startswith(begin):
            return f"{meant}correct its name (docs/guides/{guide}.md lists them)"
    return f"{meant}correct its name, or for a profile or an assumed role pass boto3_session"
