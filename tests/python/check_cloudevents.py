"""The public `cloudevents` package reads real deliveries, structured and binary."""

import json
import sys

import flare_server
import receiver
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

DOCUMENTS = [("1", "plain"), ("a%20b", 'Zoë "the" first\\'), ("x%25?lang=pt", "\u2028 \U0001f680"), ("%C3%A3", "")]


def main():
    results = []
    with receiver.listening() as (endpoint, next_delivery), flare_server.running() as base:
        resource = {"endpoint": "http://api.test/users/{id}", "change": {"field": "revision"}}
        path = f"/resources/{flare_server.call(base, 'POST', '/resources', resource)['id']}/subscriptions"
        for revision, kind in enumerate(["cloudevents", "cloudevents-binary"], start=1):
            subscription = {
                "name": kind,
                "endpoint": {"url": f"{endpoint}/a"},
                "content": {"format": kind},
                "data": {"user": "{id}", "label": "Zoë 100% \u0085"},
            }
            made = flare_server.call(base, "POST", path, subscription)
            for name, text in DOCUMENTS:
                url = f"http://api.test/users/{name}"
                document = {"revision": revision, "name": text}
                flare_server.call(base, "PUT", f"/documents/{url}", document)
                results += check(kind, next_delivery(), "created", url, revision, document)
            flare_server.call(base, "DELETE", f"/documents/{url}")
            results += check(kind, next_delivery(), "deleted", url, revision, None)
            flare_server.call(base, "DELETE", f"{path}/{made['id']}")
    for name, passed in results:
        print(f"{'ok' if passed else 'FAILED'}: {name}")
    failed = sum(not passed for _, passed in results)
    print(f"test result: {len(results) - failed} passed; {failed} failed")
    sys.exit(1 if failed else 0)


def check(kind, delivery, action, url, revision, document):
    """Reading it fails if an attribute is missing or is not what the standard allows."""
    headers, body = delivery
    event = from_http_event(HTTPMessage(headers=headers, body=body))
    data = event.get_data()
    label = json.loads(event.get_extension("flaredata"))
    checks = {
        "is in its mode": any(name.startswith("ce-") for name in headers) == (kind == "cloudevents-binary"),
        "has the id of the message": event.get_id() == headers["webhook-id"],
        "has the source": event.get_source() == "http://api.test/users/",
        "has the type": event.get_type() == f"flare.document.{action}",
        "has the document's URL as subject": event.get_subject() == url,
        "has a time with its zone": event.get_time() is not None and event.get_time().tzinfo is not None,
        "has the revision": event.get_extension("flarerevision") == str(revision),
        "has the data of the subscription": label["label"] == "Zoë 100% \u0085",
        "has the document": data == document if document else not data,
        "has the type of the document": (event.get_datacontenttype() == "application/json") == bool(document),
    }
    return [(f"{kind} {action} {url}: {name}", passed) for name, passed in checks.items()]


if __name__ == "__main__":
    main()
