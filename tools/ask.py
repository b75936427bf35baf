#!/usr/bin/env python3
"""Ask an OpenAI-compatible server one question and time the answer.

    ask.py [--url http://127.0.0.1:8000] [--max-tokens N] QUESTION

Streams the answer to standard output, then prints TTFT (request sent to first text) and TPOT (mean
time of each later token, by the server's own token count). Python's standard library only.
"""

import argparse
import http.client
import json
import sys
import time
import urllib.parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--max-tokens", type=int, default=128)
    args = parser.parse_args()

    where = urllib.parse.urlparse(args.url)
    connection = http.client.HTTPConnection(where.hostname, where.port or 80, timeout=300)
    body = {
        "messages": [{"role": "user", "content": args.question}],
        "max_tokens": args.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start = time.perf_counter()
    connection.request("POST", where.path.rstrip("/") + "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"error: the server answered {response.status}: {response.read(2000).decode()}")
    first = last = None
    tokens = 0
    for line in response:
        data = line.decode().strip().removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            sys.exit(f"error: {event['error']['message']}")
        for choice in event["choices"]:
            text = choice["delta"].get("content") or ""
            if text:
                last = time.perf_counter()
                first = first or last
                sys.stdout.write(text)
                sys.stdout.flush()
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    print()
    if first is None:
        sys.exit("error: the answer was empty")
    tpot = (last - first) / (tokens - 1) if tokens > 1 else 0
    speed = f", {1 / tpot:.1f} tokens/s" if tpot > 0 else ""
    print(f"\n{tokens} tokens, TTFT {1e3 * (first - start):.0f} ms, TPOT {1e3 * tpot:.1f} ms{speed}")


if __name__ == "__main__":
    main()
