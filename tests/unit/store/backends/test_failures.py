"""The classification of a backend's errors: whether to retry, and whether a write is in doubt."""

from __future__ import annotations

import pytest

from lakevilla.store.backends.failures import classify_failure
from lakevilla.store.base import Failure

#: No request gets through to the store.
ALL = {"permanent", "of_store"}


def said(status: int, code: str = "") -> str:
    return (
        f"Generic S3 error: Error performing PUT http://h/b/k?X-Amz-Signature=hunter2 in 1ms - "
        f"Server returned non-2xx status code: {status} Words: <Error><Code>{code}</Code>"
        f"<Message>hunter2</Message></Error>"
    )


def broke(kind: str, detail: str = "") -> str:
    return f"Generic S3 error: HTTP error\n Http(\n HttpError {{\n  kind: {kind},\n {detail} }}"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (said(500), {"ambiguous"}),
        (said(502), {"ambiguous"}),
        (said(504), {"ambiguous"}),
        (said(523), {"ambiguous"}),
        (said(599), {"ambiguous"}),
        (said(408), {"ambiguous"}),
        (said(400, "RequestTimeout"), {"ambiguous"}),
        (said(503), {"ambiguous", "throttled"}),
        (said(429), {"throttled"}),
        (said(409, "ConditionalRequestConflict"), {"conflict"}),
        (said(403, "AccessDenied"), {"permanent"}),
        (said(400, "ExpiredToken"), {"permanent"}),
        (said(404, "NoSuchBucket"), {"permanent"}),
        (said(501), {"permanent"}),
        (said(505), {"permanent"}),
        (broke("Timeout"), {"ambiguous"}),
        (broke("Request"), {"ambiguous"}),
        (broke("Connect"), set()),
        (broke("Unknown", "BadScheme"), {"permanent"}),
        ("Error after redirect", {"permanent"}),
        ("Error performing PUT http://169.254.169.254/latest/api/token", {"permanent"}),
        ("Error performing token request: no credential was found", {"permanent"}),
        ("something new", {"ambiguous"}),
    ],
)
def test_a_failure_is_classified_by_doubt_and_by_whether_a_retry_helps(
    text: str, flags: set[str]
) -> None:
    failure = classify_failure(text)
    assert not (failure.of_store and failure.ambiguous)
    names = ("ambiguous", "throttled", "conflict", "permanent")
    assert {name for name in names if getattr(failure, name)} == flags
    assert "hunter2" not in failure.reason
    assert failure.reason


@pytest.mark.parametrize("name", ["credentials", "redirects", "badscheme", "x169.254.169.254"])
def test_names_of_buckets_and_tables_do_not_change_the_class_of_a_failure(name: str) -> None:
    url = f"https://{name}.example.com/{name}/_lakevilla/HEAD.json"
    for kind in ("Timeout", "Request"):
        text = (
            f"Generic S3 error: Error performing PUT {url} in 30s - {broke(kind, f'url ({url})')}"
        )
        assert classify_failure(text) == classify_failure(broke(kind))
        assert classify_failure(text).ambiguous


def test_a_failed_read_is_never_in_doubt() -> None:
    for text in (said(500), said(503), broke("Timeout"), "something new"):
        assert not classify_failure(text, reading=True).ambiguous


def test_a_failure_is_in_doubt_by_default() -> None:
    assert Failure("?").ambiguous


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (broke("Connect"), "could not connect: check that the store is up"),
        (said(404, "NoSuchBucket"), "there is no such bucket"),
        (said(403, "InvalidAccessKeyId"), "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (said(400, "ExpiredToken"), "credentials are missing or wrong"),
        (said(301), "set AWS_REGION in storage_options or the environment"),
        (
            said(403).replace("http://h/b/k", "http://169.254.169.254/latest/api/token"),
            "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in "
            "storage_options or the environment, or pass boto3_session",
        ),
    ],
)
def test_failures_of_every_request_count_for_the_whole_store_and_name_the_option(
    text: str, words: str
) -> None:
    failure = classify_failure(text)
    assert failure.of_store
    assert words in failure.reason


def test_a_failure_of_one_object_does_not_count_for_the_whole_store() -> None:
    for text in (said(403, "AccessDenied"), said(403), said(413), said(500), broke("Timeout")):
        assert not classify_failure(text).of_store


def refused(kind: str) -> str:
    """Return the error for a certificate that the client has refused."""
    return broke("Connect", f"InvalidCertificate(\n {kind} {{\n time: 1 }} )")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (refused("ExpiredContext"), "certificate has expired: renew it"),
        (refused("NotValidYetContext"), "not valid yet: correct this machine's clock"),
        (refused("NotValidForNameContext"), "of another host: check the endpoint's name"),
        (refused("UnknownIssuer"), "not trusted here: let SSL_CERT_FILE name"),
        (broke("Connect", '"dns error"'), "no address: check this machine's DNS"),
        (
            "The operation lacked valid authentication credentials for path External AWS "
            "credential provider: ClientError: token=hunter2",
            "boto3_session gave no credentials (ClientError)",
        ),
    ],
)
def test_a_request_that_could_not_be_sent_is_sent_again_and_names_the_cause(
    text: str, words: str
) -> None:
    failure = classify_failure(text)
    assert words in failure.reason
    assert "hunter2" not in failure.reason
    assert (failure.ambiguous, failure.permanent, failure.of_store) == (False, False, True)


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        ("s3", ("AWS_ENDPOINT_URL", "AWS_SECRET_ACCESS_KEY")),
        ("gs", ("GOOGLE_BASE_URL", "GOOGLE_SERVICE_ACCOUNT")),
        ("az", ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_KEY")),
    ],
)
def test_options_in_errors_have_the_names_that_the_provider_uses(
    provider: str, names: tuple[str, str]
) -> None:
    assert names[0] in classify_failure(broke("Connect"), provider=provider).reason
    assert names[1] in classify_failure(said(401), provider=provider).reason


AZURES = "Generic MicrosoftAzure error: "


def deleted(status: int, reason: str) -> str:
    """Return the error for an object whose deletion Azure refused in a batch."""
    return (
        f"{AZURES}Bulk delete request failed for key a/(code: 200)/k: {reason} (code: {status})"
        "\n\nDebug source:\nGeneric { store }"
    )


EXPIRED = said(403, "AuthenticationFailed").replace(
    "</Error>",
    "<AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [hunter2] - "
    "Expiry [hunter2]</AuthenticationErrorDetail></Error>",
)
TOKEN = (
    f"{AZURES}Error performing token request: Error performing POST https://login.example.org/t in "
    "1ms - "
)


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        (deleted(403, "This request is not authorized"), {"permanent"}, "403: the credentials"),
        (deleted(503, "The server is busy."), {"ambiguous", "throttled"}, "503"),
        (deleted(404, "The specified container does not exist."), ALL, "no such bucket"),
        (f"{AZURES}'az account get-access-token' command failed: Azure Cli", ALL, "run `az login`"),
        (f"{AZURES}Error reading federated token file", ALL, "AZURE_FEDERATED_TOKEN_FILE"),
        (f"{TOKEN}Server returned non-2xx status code: 401 Unauthorized", ALL, "refused a token"),
        (f"{TOKEN}Server returned non-2xx status code: 503 Busy", set(), "no token"),
        (f"{TOKEN}HTTP error HttpError {{ kind: Timeout }}", set(), "no token"),
        (said(403, "AuthorizationPermissionMismatch"), {"permanent"}, "Blob Data Contributor"),
        (said(403, "KeyBasedAuthenticationNotPermitted"), ALL, "AZURE_CLIENT_ID"),
        (said(409, "ContainerBeingDeleted"), ALL, "choose another one"),
        (said(409, "BlobImmutableDueToPolicy"), {"permanent"}, "a policy keeps"),
        (said(409, "BlobArchived"), {"permanent"}, "rehydrate"),
        (said(412, "LeaseIdMissing"), {"permanent"}, "break the lease"),
        (said(400, "InvalidBlockList"), {"ambiguous"}, "another upload"),
        (said(400, "InvalidResourceName"), {"permanent"}, "a name that Azure does not take"),
        (said(403, "AuthorizationFailure"), {"permanent"}, "or the token has expired"),
        (said(403, "AuthenticationFailed"), {"permanent"}, "403 AuthenticationFailed: the cred"),
        (EXPIRED, ALL, "has expired, or is not valid yet: set a new one as AZURE_STORAGE_SAS_TOK"),
        (broke("Unknown", "BadScheme"), ALL, "AZURE_ALLOW_HTTP"),
    ],
)
def test_a_failure_on_azure_is_named_and_says_what_to_do(
    text: str, flags: set[str], words: str
) -> None:
    failure = classify_failure(text, provider="az")
    names = ("ambiguous", "throttled", "conflict", "permanent", "of_store")
    assert {name for name in names if getattr(failure, name)} == flags
    assert words in failure.reason
    assert "hunter2" not in failure.reason


@pytest.mark.parametrize(
    ("provider", "reading", "of_object"),
    [("gs", False, True), ("gs", True, False), ("s3", False, False), ("az", False, False)],
)
def test_only_gcs_limits_the_writes_of_one_object(
    provider: str, reading: bool, of_object: bool
) -> None:
    failure = classify_failure(said(429, "SlowDown"), reading, provider)
    assert (failure.throttled, failure.of_object, failure.ambiguous) == (True, of_object, False)


def not_deleted(code: str) -> str:
    """Return the error for an object that S3 has not deleted with a batch."""
    return f"Generic S3 error: DeleteObjects request failed for key a/b: It says. (code: {code})"


@pytest.mark.parametrize(
    ("code", "flags"),
    [
        ("AccessDenied", {"permanent"}),
        ("InternalError", {"ambiguous"}),
        ("SlowDown", {"ambiguous", "throttled"}),
    ],
)
def test_a_deletion_that_s3_refuses_in_a_batch_is_classified_by_its_code(
    code: str, flags: set[str]
) -> None:
    failure = classify_failure(not_deleted(code))
    names = ("ambiguous", "throttled", "conflict", "permanent")
    assert {name for name in names if getattr(failure, name)} == flags
    assert code in failure.reason


@pytest.mark.parametrize(
    ("provider", "text", "right"),
    [
        ("s3", "Error performing PUT http://h/b/k", "they may do s3:PutObject there"),
        ("s3", "Error performing POST http://h/b/k?uploads=", "they may do s3:PutObject there"),
        ("s3", "Error performing GET http://h/b/k", "they may do s3:GetObject there"),
        ("s3", "Error performing HEAD http://h/b/k", "they may do s3:GetObject there"),
        (
            "s3",
            "Error performing list request: Error performing GET http://h/b",
            "they may do s3:ListBucket there",
        ),
        ("gs", "Error performing PUT http://h/b/k", "they may do storage.objects.create there"),
        ("az", "Error performing PUT http://h/b/k", "check AZURE_STORAGE_ACCOUNT_KEY"),
        ("s3", "Error", "their rights"),
    ],
)
def test_a_refusal_names_the_right_that_a_policy_must_give(
    provider: str, text: str, right: str
) -> None:
    refused = f"{text} in 1ms - Server returned non-2xx status code: 403 Forbidden: "
    assert right in classify_failure(refused, provider=provider).reason
    assert "s3:DeleteObject" in classify_failure(not_deleted("AccessDenied")).reason
