"""The catalogue of failures: each is one class with a code, a hint, an HTTP status and a JSON-RPC code.

Codes -32010 … -32019 are ours: the specification leaves -32000 … -32019 to implementations (SDKs use
-32000 … -32002). Messages name a limit and the setting that sets it; they never hold a path, a token or a
session id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self


class AdapterError(Exception):
    """A failure the adapter can explain. ``str(error)`` is the sentence a client may read.

    ``http`` is the status of the answer; ``legacy_http`` the status a *legacy JSON-RPC request* gets instead,
    because a 429, 502 or 503 on a POST ends the connection of several clients. ``data`` goes into the JSON-RPC
    error's ``data``; ``retry_after`` (seconds) also into the ``Retry-After`` header. ``reason`` is a sentence for
    operators, where there is more to say than a client may read.
    """

    code: ClassVar[str] = "internal"
    rpc: ClassVar[int] = -32603
    http: ClassVar[int] = 500
    legacy_http: ClassVar[int | None] = None
    hint: ClassVar[str] = "The adapter failed unexpectedly; its log has the details."

    def __init__(
        self,
        message: str | None = None,
        *,
        data: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or self.hint)
        self.data = dict(data) if data else None
        self.retry_after = retry_after
        self.reason: str | None = None


# --- what the client sent -------------------------------------------------------------------------------------


class BadJson(AdapterError):
    code, rpc, http = "bad_json", -32700, 400
    hint = "The body is not valid JSON in UTF-8."


class BadRequest(AdapterError):
    """``id_bytes`` is the id of the request that is refused, as it was spelled, where that can be known."""

    code, rpc, http = "bad_request", -32600, 400
    hint = "The body is not a JSON-RPC 2.0 message that this endpoint accepts."
    id_bytes: bytes | None = None


class HeaderMismatch(AdapterError):
    """MCP 2026-07-28, streamable HTTP, "Server Validation"."""

    code, rpc, http = "header_mismatch", -32020, 400
    hint = "The request's headers do not match its body."


class MessageTooLong(AdapterError):
    code, rpc, http = "body_too_large", -32600, 413
    hint = "The message is larger than core.max_request_bytes allows."


class BodyTooSlow(AdapterError):
    code, rpc, http = "body_too_slow", -32600, 408
    hint = "The body arrived too slowly."


class TargetTooLong(AdapterError):
    code, rpc, http = "target_too_long", -32600, 414
    hint = "The query of the request's target is too long."


class UnsupportedMediaType(AdapterError):
    code, rpc, http = "unsupported_media_type", -32600, 415
    hint = "Send the body as application/json; Content-Encoding may be gzip or deflate."


class Unauthorized(AdapterError):
    """``challenge`` is the value of WWW-Authenticate in its answer."""

    code, rpc, http = "unauthorized", -32600, 401
    hint = "A valid token is required: send it as a Bearer token or in the adapter's token header."
    challenge: str = 'Bearer realm="mcp-file-adapter"'


class InsufficientScope(Unauthorized):
    """The ``challenge`` names the scopes that are needed (RFC 6750 §3.1)."""

    code, rpc, http = "insufficient_scope", -32600, 403
    hint = "The access token has too few scopes: sign in again with those that WWW-Authenticate names."


class ConsoleRefused(AdapterError):
    code, rpc, http = "console_refused", -32600, 403
    hint = "You are signed in, but may not see the console: console.oauth names the scopes and claims for it."

    @classmethod
    def to(cls, needed: str) -> Self:
        """The refusal of somebody who has none of what is ``needed``."""
        return cls(f"You are signed in, but may not see the console: that needs {needed} (console.oauth).")


class OnThisMachineOnly(AdapterError):
    code, rpc, http = "on_this_machine_only", -32600, 403
    hint = "Without core.auth this is for callers on this machine that no proxy passes on: enable core.auth."


class HostRefused(AdapterError):
    code, rpc, http = "host_refused", -32600, 421
    hint = "This Host is not served here; add it to core.allowed_hosts."


class OriginRefused(AdapterError):
    code, rpc, http = "origin_refused", -32600, 403
    hint = "This Origin may not call the adapter; add it to core.allowed_origins."


class NavigationRefused(AdapterError):
    code, rpc, http = "navigation_refused", -32600, 403
    hint = "This is an MCP endpoint for MCP clients; a browser may not open it as a page."


class NotFound(AdapterError):
    code, rpc, http = "not_found", -32600, 404
    hint = "Nothing is served here."


class MethodNotAllowed(AdapterError):
    code, rpc, http = "method_not_allowed", -32600, 405
    hint = "This HTTP method is not served here."


class SessionMissing(AdapterError):
    code, rpc, http = "session_missing", -32600, 400
    hint = "Mcp-Session-Id is missing: send initialize first, then its session id with every request."


class SessionUnknown(AdapterError):
    """404 is the status that makes a client through MCP 2025-11-25 initialize again."""

    code, rpc, http = "session_unknown", -32600, 404
    hint = "This session is unknown or has ended: send initialize again."


# --- limits ---------------------------------------------------------------------------------------------------


class LimitReached(AdapterError):
    code, rpc, http, legacy_http = "limit_reached", -32015, 429, 200
    hint = "A limit of the adapter was reached; try again shortly."


class ConnectionsTaken(AdapterError):
    code, rpc, http = "connections_taken", -32015, 503
    hint = (
        "The number of connections has reached core.max_connections or the system's limit of open files; "
        "try again shortly."
    )


class BuffersFull(AdapterError):
    code, rpc, http = "buffers_full", -32015, 503
    hint = "The request bodies in memory have reached core.max_buffered_bytes; try again shortly."


# --- the catalogue --------------------------------------------------------------------------------------------


class CatalogueDrifted(AdapterError):
    """``data["drift"]`` says what changed. The request was understood and refused, so HTTP sees a success."""

    code, rpc, http = "catalogue_drifted", -32010, 200
    hint = "The upstream server changed its tools since this session first saw them."


class ToolUnknown(AdapterError):
    """The answer of a server to a name it does not know (MCP, tools, "Error Handling")."""

    code, rpc, http = "tool_unknown", -32602, 200
    hint = "There is no such tool."


class CatalogueMoved(AdapterError):
    code, rpc, http = "catalogue_moved", -32600, 409
    hint = "The server's tools have changed again: look at them again before you accept them."


class BoundByFile(AdapterError):
    code, rpc, http = "bound_by_file", -32600, 409
    hint = "This server has a lock file, so nothing can be accepted here: use mcp-adapter pins export."


class NothingToAccept(AdapterError):
    code, rpc, http = "nothing_to_accept", -32600, 409
    hint = "The adapter has not seen this server's tools yet, or tool_definition_pinning.mode is off for it."


# --- files ----------------------------------------------------------------------------------------------------


class CredentialRefused(AdapterError):
    """One sentence for every reason: which part of a credential was right is nobody's business."""

    code, rpc, http = "credential_refused", -32600, 401
    hint = "This link is not valid, has expired or was used already; ask the helper tool for a new one."


class UploadRefused(AdapterError):
    code, rpc, http = "upload_refused", -32600, 400
    hint = "The upload is not what the request announced."


class NotMultipart(AdapterError):
    code, rpc, http = "not_multipart", -32600, 415
    hint = "Send the files as multipart/form-data, each in a part named file."


class UploadStalled(AdapterError):
    code, rpc, http = "upload_stalled", -32600, 408
    hint = "The upload was silent for longer than uploads.stall_timeout_seconds allows."


class FileTooLarge(AdapterError):
    code, rpc, http = "file_too_large", -32600, 413
    hint = "The file is larger than uploads.max_file_bytes allows."


class QuotaReached(AdapterError):
    code, rpc, http, legacy_http = "quota_reached", -32015, 429, 200
    hint = "The files are larger than sessions.max_total_session_size allows."


class StorageFull(AdapterError):
    code, rpc, http, legacy_http = "storage_full", -32015, 507, 200
    hint = "There is no space for the file: storage.max_size is reached, or the disk is full."


class FileGone(AdapterError):
    """The same for a file that expired, was evicted, is another scope's or never was."""

    code, rpc, http = "file_gone", -32602, 404
    hint = "This file does not exist or has expired."


class FileChanged(AdapterError):
    code, rpc, http = "file_changed", -32602, 409
    hint = (
        "The stored file was changed by something other than the adapter, so it is not given out. Upload it again, "
        "or let the tool write it again."
    )


class StorageFailed(AdapterError):
    code, rpc, http, legacy_http = "storage_failed", -32603, 500, 200
    hint = "The adapter could not read or write a file; its log has the details."


# --- the upstream ---------------------------------------------------------------------------------------------


class UpstreamUnreachable(AdapterError):
    code, rpc, http, legacy_http = "upstream_unreachable", -32011, 502, 200
    hint = "The upstream server cannot be reached; try again when it is back."


class UpstreamBroken(AdapterError):
    """The upstream's answer had begun and broke off, or was not HTTP."""

    code, rpc, http, legacy_http = "upstream_broken", -32011, 502, 200
    hint = "The upstream server's answer broke off; the call may or may not have run."


class UpstreamUnanswered(AdapterError):
    """A request left for the upstream and no byte of an answer came, so it may have run and is not sent again."""

    code, rpc, http, legacy_http = "upstream_unanswered", -32011, 502, 200
    hint = "The upstream server closed the connection before it answered; the call may have run."


class CallLost(UpstreamUnanswered):
    """A call that waited for an answer of its client, and cannot go on. ``data`` names the replica that had it."""

    code = "call_lost"
    hint = "The call that waited for this answer is gone; it may have run."


class RequestStateRefused(AdapterError):
    """Counted by its code, for nobody but an attacker sends another state than the one that was given."""

    code, rpc, http = "request_state_refused", -32602, 400
    hint = "This requestState is not that of a call of this caller with these arguments, or it was changed."


class UpstreamNotStarted(AdapterError):
    """``reason`` is a sentence for operators: it may name the command, a folder and a setting."""

    code, rpc, http, legacy_http = "upstream_not_started", -32011, 502, 200
    hint = "The upstream server's process could not be started; the adapter's log has the reason."

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason: str = reason


class GrantRequired(AdapterError):
    """A person has to allow the adapter to act for them at an upstream. ``data`` is a URL elicitation's
    (``elicitationId``, ``url``, ``message``), for whoever can show a link.
    """

    code, rpc, http, legacy_http = "grant_required", -32017, 403, 200
    hint = "This server needs your authorization. Open the link in a browser, then try again."


class UrlElicitationRequired(GrantRequired):
    """The same for clients that have declared the URL mode of elicitation (MCP 2025-11-25, "Elicitation")."""

    code, rpc, http, legacy_http = "url_elicitation_required", -32042, 403, 200


class AuthorizationFailed(AdapterError):
    """An authorization server did not give what was asked of it; ``reason`` is for operators."""

    code, rpc, http, legacy_http = "authorization_failed", -32011, 502, 200
    hint = "The authorization server of this upstream server cannot be used now; try again later."


class UpstreamRefused(AdapterError):
    """Not a 401 for the client: its own credential, for the adapter, is good."""

    code, rpc, http, legacy_http = "upstream_refused", -32011, 502, 200
    hint = "The upstream server refused the credentials that the adapter sent it."


class CredentialsMissing(AdapterError):
    """There is no credential that a request to an upstream could carry, so it was not sent."""

    code, rpc, http, legacy_http = "credentials_missing", -32011, 502, 200
    hint = "The adapter has no credentials for this upstream server."


class AnswerTooLarge(AdapterError):
    """Only of answers that the adapter has to read: what is passed on is never held."""

    code, rpc, http, legacy_http = "answer_too_large", -32011, 502, 200
    hint = "The upstream server's answer is larger than core.upstream.max_answer_bytes allows."


class UpstreamUnhealthy(AdapterError):
    code, rpc, http, legacy_http = "upstream_unhealthy", -32012, 503, 200
    hint = "Upstream is unhealthy (circuit breaker open)."


class UpstreamSilent(AdapterError):
    code, rpc, http, legacy_http = "upstream_silent", -32013, 504, 200
    hint = "The upstream server was silent for too long."


class CallTooLong(UpstreamSilent):
    """The server may have said much: this limit is one of all the time that a call takes."""

    code, rpc, http, legacy_http = "call_too_long", -32013, 504, 200
    hint = "The call took longer than tool_call_total_seconds allows."


# --- the adapter's own parts ----------------------------------------------------------------------------------


class StoreUnavailable(AdapterError):
    code, rpc, http, legacy_http = "store_unavailable", -32014, 503, 200
    hint = "The adapter's state store is unavailable; try again when it is available."


class IssuerUnavailable(AdapterError):
    """A token that may be good: its issuer cannot be asked, and what is known of it does not suffice."""

    code, rpc, http, legacy_http = "issuer_unavailable", -32014, 503, 200
    hint = "The access token cannot be checked now, because its issuer does not answer; try again shortly."


class AuditUnavailable(AdapterError):
    """A call would not be on record, and the settings want each of them to be."""

    code, rpc, http, legacy_http = "audit_unavailable", -32014, 503, 200
    hint = "The adapter cannot record this call; try again when its audit log can be written."


class AdapterStopping(AdapterError):
    """The grace of a stopping adapter is over and the exchange is not."""

    code, rpc, http, legacy_http = "stopping", -32016, 503, 200
    hint = "The adapter is stopping; the call may have run. Try again when it is back."


class InternalError(AdapterError):
    pass
