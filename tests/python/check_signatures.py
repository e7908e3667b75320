"""The public `standardwebhooks` package verifies the signatures of real deliveries."""

import http.server
import queue
import sys
import threading

import flare_server
from standardwebhooks import Webhook, WebhookVerificationError

DELIVERY_SECONDS_MAX = 30


def main():
    deliveries = queue.Queue()
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), recorder(deliveries))
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with flare_server.running() as base:
        secret = subscribe(base, f"http://127.0.0.1:{receiver.server_port}/a")
        messages = []
        for revision, name in enumerate(["plain", 'Zoë "the" first\\', "\u2028 \U0001f680", ""], start=1):
            document = {"revision": revision, "name": name}
            flare_server.call(base, "PUT", "/documents/http://api.test/users/1", document)
            messages.append(deliveries.get(timeout=DELIVERY_SECONDS_MAX))
    receiver.shutdown()
    check(secret, messages)


def recorder(deliveries):
    class Recorder(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            deliveries.put((dict(self.headers), body))

        def log_message(self, *_):
            pass

    return Recorder


def subscribe(base, url):
    resource = {"endpoint": "http://api.test/users/{id}", "change": {"field": "revision"}}
    made = flare_server.call(base, "POST", "/resources", resource)
    subscription = {"name": "a", "endpoint": {"url": url, "method": "post"}}
    return flare_server.call(base, "POST", f"/resources/{made['id']}/subscriptions", subscription)["secret"]


def check(secret, messages):
    webhook = Webhook(secret)
    results = []
    for headers, body in messages:
        envelope = webhook.verify(body, headers)
        results.append(("a delivery verifies", envelope["document"]["revision"] == envelope["revision"]))
        tampered = body.replace(b'"revision"', b'"revisiom"', 1)
        results.append(("a changed body does not", tampered != body and refused(webhook, tampered, headers)))
        later = {name.lower(): value for name, value in headers.items()}
        later["webhook-timestamp"] = str(int(later["webhook-timestamp"]) + 1)
        results.append(("a changed time does not", refused(webhook, body, later)))
        other = Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        results.append(("another secret does not", refused(other, body, headers)))
    for name, passed in results:
        print(f"{'ok' if passed else 'FAILED'}: {name}")
    failed = sum(not passed for _, passed in results)
    print(f"test result: {len(results) - failed} passed; {failed} failed")
    sys.exit(1 if failed else 0)


def refused(webhook, body, headers):
    try:
        webhook.verify(body, headers)
    except WebhookVerificationError:
        return True
    return False


if __name__ == "__main__":
    main()
