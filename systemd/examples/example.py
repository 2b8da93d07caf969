import http.client, json, socket

SOCKET = "/run/kyc-tokend/http.sock"

def ask():
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30)
    connection.sock.connect(SOCKET)
    connection.request("GET", "/v1/token?waitSeconds=10")
    return json.load(connection.getresponse())

try:
    try:
        answer = ask()
    except ConnectionError:  # The daemon ended, and another one runs.
        answer = ask()
except OSError as error:  # No daemon is there, or none that answers.
    raise SystemExit(f"no daemon answers at {SOCKET}: {error}")
if "accessToken" not in answer:
    raise SystemExit(f"no token: {answer['detail']}")
print(len(answer["accessToken"]), "characters")
