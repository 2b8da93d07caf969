"""The token of kyc-tokend for programs in Python 3.8 or newer: this one file, and the standard library.

    import kyc_token

    token = kyc_token.get()                      # token.headers, token.access_token, token.expires_at
    with kyc_token.urlopen("https://api.example.com/some/path", timeout=30) as answer:
        print(answer.status)

`urlopen` sends a call with the token; `httpx_auth()` is an auth hook for httpx, `adapt(session)` one for requests.
If the API refuses the token, each follows the rule of kyc-tokend-protocol(7): it reports the token, waits up to
10 s for another, and repeats the call once. What goes wrong with kyc-tokend is a KycTokenError, whose text is a
sentence; a program that does not catch it ends with that sentence. The socket is $KYC_TOKEND_HTTP_SOCKET, or
/run/kyc-tokend/http.sock.
"""
import collections
import http.client
import json
import os
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

WAIT_S = 10
OWN_S = 300
MAX_RETRY_S = 86400
MAX_PLACES = 64
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class KycTokenError(Exception):
    """`code` is one of kyc-tokend's (no-token-yet, expired, ...), or daemon-unreachable."""

    def __init__(self, code, message):
        super().__init__("".join(c if c.isprintable() else " " for c in str(message)))
        self.code = code


def _sentence(kind, error, trace, otherwise=sys.excepthook):
    if issubclass(kind, KycTokenError):
        print("kyc-tokend: %s" % error, file=sys.stderr)
    else:
        otherwise(kind, error, trace)


sys.excepthook = _sentence


class Token:
    def __init__(self, fields):
        self.access_token = _text(fields, "accessToken", r"[\x21-\x7e\xa1-\xff]+")
        self.fingerprint = _text(fields, "fingerprint", "[0-9a-f]+")
        self.expires_at = _text(fields, "expiresAt", ".+")
        self.refused_by = fields.get("refusedBy")
        _expect(isinstance(self.refused_by, list))
        try:
            self.origin = _origin(_text(fields, "baseUrl", "https?://.+"))
        except ValueError:
            _expect(False)
        header, prefix = _text(fields, "header", r"[\w!#$%&'*+.^`|~-]+"), _text(fields, "prefix", r"[\x20-\x7e]*")
        self.headers = {header: prefix + self.access_token}

    def __repr__(self):
        return "<Token %s>" % self.fingerprint


def _expect(is_right):
    if not is_right:
        raise KycTokenError("bad-request", "its answer is not that of kyc-tokend")


def _text(fields, name, pattern=".*", otherwise=None):
    value = fields.get(name, otherwise)
    _expect(isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII | re.DOTALL))
    return value


def _socket_path():
    return os.environ.get("KYC_TOKEND_HTTP_SOCKET") or "/run/kyc-tokend/http.sock"


class _Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(_socket_path())


def _ask(method, target, body=None):
    """The answer's fields. A daemon that restarts ends the connection before it answers: it is asked again."""
    for attempt in (1, 2):
        connection = _Connection("localhost", timeout=WAIT_S + 20)
        try:
            connection.request(method, target, body and json.dumps(body))
            answer = connection.getresponse()
            fields = json.loads(answer.read())
            _expect(isinstance(fields, dict))
            if answer.status == 200:
                return fields
            code = _text(fields, "code", otherwise="bad-request")
            raise KycTokenError(code, _text(fields, "detail", otherwise="it gave no reason"))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            if attempt == 2 or not isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                why = "no daemon answers at %s (%s): `kyc-tokend status` says why" % (_socket_path(), error)
                raise KycTokenError("daemon-unreachable", why) from None
            time.sleep(0.2)
        finally:
            connection.close()


def get(min_valid_seconds=0, not_fingerprint=None, wait_seconds=WAIT_S):
    """The token; waits up to `wait_seconds` for one. Raises KycTokenError."""
    query = {"minValidSeconds": min_valid_seconds, "waitSeconds": wait_seconds}
    if not_fingerprint:
        query["notFingerprint"] = not_fingerprint
    return Token(_ask("GET", "/v1/token?" + urllib.parse.urlencode(query)))


_lock = threading.Lock()
_reports = collections.OrderedDict()  # fingerprint: (another may come, until)
_own = collections.OrderedDict()  # place: until


def refused(token, method, url, status=401, repeated=False):
    """The token with which to repeat the call, once; None: the refusal is the answer to it.

    Call it with the answer's status if that is one of `token.refused_by`, and, with `repeated`, if the second
    token is refused as well."""
    url = urllib.parse.urlsplit(url)
    place = (method.upper(), url.scheme, url.netloc, url.path)
    now = time.monotonic()
    with _lock:
        if _own.get(place, 0) > now:
            return None
        if repeated:
            _is_own(place, now)
            return None
        may_come, until = _reports.get(token.fingerprint, (False, 0))
        if until <= now:
            # Reported within the lock: calls that are refused at the same time report it once.
            may_come, until = _report(token, place, now)
            _remember(_reports, token.fingerprint, (may_come, until), 16)
    if not may_come or (status != 401 and method.upper() not in SAFE_METHODS):
        return None
    try:
        other = get(not_fingerprint=token.fingerprint)
    except KycTokenError:
        return None
    return None if other.fingerprint == token.fingerprint else other


def _report(token, place, now):
    try:
        answer = _ask("POST", "/v1/token/reject", {"fingerprint": token.fingerprint})
        verdict, seconds = _text(answer, "verdict"), answer.get("retryAfterSeconds", 30)
        _expect(isinstance(seconds, (int, float)) and 0 <= seconds <= MAX_RETRY_S)
    except KycTokenError:
        return False, 0
    if verdict == "unchanged":
        _is_own(place, now)
    may_come = verdict in ("replaced", "refreshing") or (verdict == "held" and seconds <= WAIT_S)
    return may_come, now + seconds


def _is_own(place, now):
    _remember(_own, place, now + OWN_S, MAX_PLACES)


def _remember(entries, key, value, most):
    entries.pop(key, None)
    entries[key] = value
    while len(entries) > most:
        entries.popitem(last=False)


def _origin(url):
    parts = urllib.parse.urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return (parts.scheme, parts.hostname, port)


def _check(url, token):
    if _origin(url) != token.origin:
        words = "the token is for %s://%s:%s and is not sent to %s://%s:%s"
        raise KycTokenError("bad-request", words % (token.origin + _origin(url)))


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if _origin(newurl) != _origin(req.full_url):
            raise KycTokenError("bad-request", "a redirect leads to another origin, to which no token is sent")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_SameOrigin)


def urlopen(url, data=None, headers=(), method=None, timeout=30):
    """As urllib.request.urlopen, with the token; a status of an error is an answer, not an exception."""
    if data is not None and not isinstance(data, bytes):
        raise TypeError("data must be bytes, which can be sent again")

    def send(token):
        _check(url, token)
        request = urllib.request.Request(url, data, dict(headers), method=method)
        for name, value in token.headers.items():
            request.add_header(name, value)
        try:
            return request.get_method(), _opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            return request.get_method(), error

    token = get()
    verb, answer = send(token)
    if answer.status in token.refused_by:
        other = refused(token, verb, url, answer.status)
        if other is not None:
            answer.close()
            verb, answer = send(other)
            if answer.status in other.refused_by:
                refused(other, verb, url, answer.status, repeated=True)
    return answer


def httpx_auth():
    """httpx: `httpx.Client(auth=kyc_token.httpx_auth())`; also of an AsyncClient, whose loop its waits block."""
    import httpx

    class Auth(httpx.Auth):
        requires_request_body = True

        def auth_flow(self, request):
            token = get()
            _check(str(request.url), token)
            request.headers.update(token.headers)
            answer = yield request
            if answer.status_code not in token.refused_by:
                return
            other = refused(token, request.method, str(request.url), answer.status_code)
            if other is None:
                return
            request.headers.update(other.headers)
            answer = yield request
            if answer.status_code in other.refused_by:
                refused(other, request.method, str(request.url), answer.status_code, repeated=True)

    return Auth()


def adapt(session):
    """requests: `session = kyc_token.adapt(requests.Session())`; calls of the session have the token."""

    def auth(request):
        token = get()
        _check(request.url, token)
        request.headers.update(token.headers)

        def answered(answer, **options):
            if answer.status_code not in token.refused_by or answer.request.url != request.url:
                return answer
            other = refused(token, request.method, request.url, answer.status_code)
            body = request.body
            if other is None or not (body is None or isinstance(body, (bytes, str))):
                return answer
            answer.content  # Read, so that the connection can be used again.
            again = request.copy()
            again.hooks = {"response": []}
            again.headers.update(other.headers)
            second = answer.connection.send(again, **options)
            second.history.append(answer)
            second.request = again
            if second.status_code in other.refused_by:
                refused(other, request.method, request.url, second.status_code, repeated=True)
            return second

        request.register_hook("response", answered)
        return request

    def rebuild_auth(prepared, response):
        if _origin(prepared.url) != _origin(response.request.url):
            raise KycTokenError("bad-request", "a redirect leads to another origin, to which no token is sent")

    session.auth = auth
    session.rebuild_auth = rebuild_auth
    return session


if __name__ == "__main__":
    print(repr(get()))
