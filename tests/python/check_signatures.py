"""The public `standardwebhooks` and `cryptography` packages verify the signatures of real deliveries."""

import base64
import sys

import flare_server
import receiver
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

NAMES = ["plain", 'Zoë "the" first\\', "\u2028 \U0001f680", ""]


def main():
    with receiver.listening() as (endpoint, next_delivery), flare_server.running() as base:
        path, made = subscribe(base, f"{endpoint}/a")
        revisions = iter(range(1, 100))

        def deliver(names):
            messages = []
            for name in names:
                document = {"revision": next(revisions), "name": name}
                flare_server.call(base, "PUT", "/documents/http://api.test/users/1", document)
                messages.append(next_delivery())
            return messages

        def rotate(body):
            return flare_server.call(base, "POST", f"{path}/secret/rotate", body)

        results = check_shared(made["secret"], deliver(NAMES))
        rotated = rotate({"overlap": "1h"})
        messages = deliver(["rotated"])
        results += check_shared(made["secret"], messages) + check_shared(rotated["secret"], messages)
        first = rotate({"signature": "v1a"})
        messages = deliver(NAMES)
        results += check_shared(rotated["secret"], messages) + check_pair(first["publicKey"], messages)
        second = rotate({})
        messages = deliver(["rotated"])
        results += check_pair(first["publicKey"], messages) + check_pair(second["publicKey"], messages)
        last = rotate({"overlap": "0s"})
        results += check_pair(last["publicKey"], deliver(["alone"]))
    for name, passed in results:
        print(f"{'ok' if passed else 'FAILED'}: {name}")
    failed = sum(not passed for _, passed in results)
    print(f"test result: {len(results) - failed} passed; {failed} failed")
    sys.exit(1 if failed else 0)


def subscribe(base, url):
    resource = {"endpoint": "http://api.test/users/{id}", "change": {"field": "revision"}}
    made = flare_server.call(base, "POST", "/resources", resource)
    subscription = {"name": "a", "endpoint": {"url": url, "method": "post"}}
    path = f"/resources/{made['id']}/subscriptions"
    made = flare_server.call(base, "POST", path, subscription)
    return f"{path}/{made['id']}", made


def check_shared(secret, messages):
    webhook = Webhook(secret)
    results = []
    for headers, body in messages:
        envelope = webhook.verify(body, headers)
        results.append(("a delivery verifies", envelope["document"]["revision"] == envelope["revision"]))
        results.append(("a changed body does not", refused(webhook, tampered(body), headers)))
        results.append(("a changed time does not", refused(webhook, body, later(headers))))
        other = Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        results.append(("another secret does not", refused(other, body, headers)))
    return results


def refused(webhook, body, headers):
    try:
        webhook.verify(body, headers)
    except WebhookVerificationError:
        return True
    return False


def check_pair(public_key, messages):
    results = []
    for headers, body in messages:
        results.append(("a delivery verifies by the public key", verifies(public_key, body, headers)))
        results.append(("a changed body does not", not verifies(public_key, tampered(body), headers)))
        results.append(("a changed time does not", not verifies(public_key, body, later(headers))))
    return results


def verifies(public_key, body, headers):
    """As the specification of Standard Webhooks describes v1a."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_"), validate=True))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    for signature in headers["webhook-signature"].split(" "):
        version, _, encoded = signature.partition(",")
        if version == "v1a":
            try:
                key.verify(base64.b64decode(encoded, validate=True), content)
                return True
            except InvalidSignature:
                pass
    return False


def tampered(body):
    changed = body.replace(b'"revision"', b'"revisiom"', 1)
    assert changed != body
    return changed


def later(headers):
    return headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}


if __name__ == "__main__":
    main()
