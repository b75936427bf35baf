"""The HTTP layer from outside: framing, limits, deadlines, order, connections that go away."""

import json
import random
import socket
import struct
import time
import unittest

from harness import Server, ServerTest, post_bytes, read_all, read_until, statuses

ENDLESS = {"prompt": "[[97 98 99]]*", "max_tokens": 4000}


def rst(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Framing(ServerTest):
    def exchange(self, data):
        with self.server.connect() as s:
            s.sendall(data)
            return read_all(s)

    def test_SEC_07_length_and_coding(self):
        hidden = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
        body = b"0\r\n\r\n"
        for headers in ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
                        "Transfer-Encoding: chunked, gzip\r\n",
                        "Transfer-Encoding: gzip, chunked\r\n",
                        "Transfer-Encoding: identity\r\n",
                        "Transfer-Encoding : chunked\r\n",
                        "Content-Length: 5\r\nContent-Length: 6\r\n",
                        "Content-Length: +5\r\n", "Content-Length: 5, 5\r\n"):
            data = self.exchange(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{headers}\r\n"
                                 .encode() + body + hidden)
            self.assertEqual(statuses(data), [400], headers)
            self.assertNotIn(b"0.0-fake", data)

    def test_malformed_heads_are_400_and_closed(self):
        for head in (b"GET\r\n\r\n", b"GET /health\r\n\r\n", b"GET /health HTTP/1.1\n\n\r\n\r\n",
                     b"GET /health HTTP/1.1\r\n\r\n", b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
                     b"GET health HTTP/1.1\r\nHost: x\r\n\r\n"):
            self.assertEqual(statuses(self.exchange(head)), [400], head)
        self.assertEqual(statuses(self.exchange(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n")), [505])

    def test_chunked_body(self):
        body = json.dumps({"prompt": "[[104]]", "max_tokens": 5}).encode()
        pieces = b"".join(b"%x;x=y\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                          for i in range(0, len(body), 7))
        head = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        data = self.exchange(head + pieces + b"0\r\nTrailer: t\r\n\r\n")
        self.assertEqual(statuses(data), [200])
        self.assertIn(b'"text":"h"', data)
        self.assertEqual(statuses(self.exchange(head + b"zz\r\n")), [400])

    def test_expect_continue(self):
        body = json.dumps({"prompt": "[[104]]"}).encode()
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/completions", body, "Expect: 100-continue\r\n")[:-len(body)])
            self.assertEqual(statuses(read_until(s, b"\r\n\r\n")), [100])
            s.sendall(body)
            self.assertEqual(statuses(read_until(s, b"}")), [200])

    def test_REQ_14_pipelining(self):
        get = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /load HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        data = self.exchange(get + last)
        self.assertEqual(statuses(data), [200, 200])
        self.assertLess(data.index(b"version"), data.index(b"server_load"))
        data = self.exchange(post_bytes("/v1/completions", {"prompt": "[[104]]"}) + last)
        self.assertEqual(statuses(data), [200, 200])
        self.assertLess(data.index(b"text_completion"), data.index(b"server_load"))

    def test_REQ_16_keep_alive(self):
        with self.server.connect() as s:
            for _ in range(200):
                s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertEqual(statuses(read_until(s, b"}")), [200])

    def test_http_1_0_closes(self):
        self.assertEqual(statuses(self.exchange(b"GET /health HTTP/1.0\r\n\r\n")), [200])

    def test_head_has_no_body(self):
        data = self.exchange(b"HEAD /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertEqual(statuses(data), [200])
        self.assertTrue(data.endswith(b"\r\n\r\n"))

    def test_methods_and_paths(self):
        status, headers, _ = self.server.request("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertError(self.server.post("/v1/nothing", {}), 404)
        self.assertError(self.server.post("/v1/completions", "{}", **{"Content-Type": "text/plain"}))
        status, _ = self.server.post("/v1/completions", '{"prompt": "[[104]]"}',
                                     **{"Content-Type": "application/json; charset=utf-8"})
        self.assertEqual(status, 200)


class Limits(ServerTest):
    options = {"deadline_ms": 3000, "max_body": 1 << 20}

    def test_REQ_15_slow_senders(self):
        body = post_bytes("/v1/completions", b"x" * 100)
        head_end = body.index(b"\r\n\r\n") + 4
        slow = [self.server.connect(), self.server.connect()]
        slow[1].sendall(body[:head_end])
        start = time.time()
        rest = [body, body[head_end:]]
        while time.time() < start + 2.5:
            for i, s in enumerate(slow):
                s.sendall(rest[i][:1])
                rest[i] = rest[i][1:]
            self.assertEqual(self.server.request("GET", "/health")[0], 200)
            time.sleep(0.5)
        for s in slow:
            self.assertEqual(statuses(read_all(s, 3)), [408])
            self.assertLess(time.time() - start, 4)
            s.close()

    def test_REQ_17_limits(self):
        before = self.server.rss()
        line = b"GET /health HTTP/1.1\r\nHost: x\r\n"
        post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        cases = [
            (line + b"A: " + b"x" * (1 << 20) + b"\r\n\r\n", 431),
            (line + b"".join(b"A%d: 1\r\n" % i for i in range(10000)) + b"\r\n", 431),
            (line + b"".join(b"A%d: 1\r\n" % i for i in range(300)) + b"\r\n", 431),
            (post + b"Content-Length: 1000000000000\r\n\r\n", 413),
            (post + b"Transfer-Encoding: chunked\r\n\r\n" +
             (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20, 413),
        ]
        for data, want in cases:
            with self.server.connect() as s:
                try:
                    s.sendall(data)
                except (ConnectionResetError, BrokenPipeError):
                    pass
                self.assertEqual(statuses(read_all(s)), [want])
        self.assertGrewLess(self.server, before, 8 << 20)


class Disconnects(ServerTest):
    options = {"step_us": 2000}

    def test_REQ_13_idle_and_unread(self):
        keep = [self.server.connect() for _ in range(64)]
        for s in keep:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            read_until(s, b"\r\n\r\n")
        streams = [self.server.connect() for _ in range(64)]
        for s in streams:
            s.sendall(post_bytes("/v1/completions", {**ENDLESS, "stream": True}))
        start = time.time()
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        self.assertLess(time.time() - start, 1)
        for s in keep + streams:
            s.close()

    def test_REQ_13_unread_stream_is_merged(self):
        server = Server(step_us=200)
        body = {"prompt": "[[97 98 99]]*", "max_tokens": 3000, "stream": True, "logprobs": 5}
        before = server.rss()
        with server.connect() as s:
            s.sendall(post_bytes("/v1/completions", body, "Connection: close\r\n"))
            first = read_until(s, b"data: ")
            server.at_rest(20)
            self.assertGrewLess(server, before, 8 << 20)
            data = first + read_all(s, 30)
        events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
        choices = [e["choices"][0] for e in events]
        self.assertEqual("".join(c["text"] for c in choices)[-3000:], "abc" * 1000)
        tokens = [t for c in choices for t in c["logprobs"]["tokens"]]
        self.assertEqual(len(tokens), 3000)
        self.assertLess(len(choices), 2500)
        self.assertEqual(server.close()[0], 0)

    def test_REQ_18_disconnect_frees(self):
        reference = self.server.completion("steady", max_tokens=200, temperature=0)[1]
        before = self.server.finished("abort")
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/completions", {**ENDLESS, "stream": True}))
            for _ in range(3):
                read_until(s, b"\n\n")
            rst(s)
        self.server.at_rest(1)
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/completions", ENDLESS))
            time.sleep(0.05)
        self.server.at_rest(1)
        with self.server.connect() as s: # only the sending side is closed
            s.sendall(post_bytes("/v1/completions", ENDLESS))
            time.sleep(0.05)
            s.shutdown(socket.SHUT_WR)
            self.server.at_rest(1)
        self.assertEqual(self.server.finished("abort") - before, 3)
        rng = random.Random(18)
        for i in range(200):
            s = self.server.connect()
            s.sendall(post_bytes("/v1/completions", {**ENDLESS, "stream": i % 2 == 0}))
            time.sleep(rng.random() * 0.01)
            rst(s) if i % 3 == 0 else s.close()
            if i % 50 == 0:
                same = self.server.completion("steady", max_tokens=200, temperature=0)[1]
                self.assertEqual(same["choices"], reference["choices"])
        self.server.at_rest(2)

    def test_REQ_18_while_reading_is_paused(self):
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/completions", ENDLESS) + b"GET /x HTTP/1.1\r\n" * 20000)
            time.sleep(0.2)
            rst(s)
        self.server.at_rest(1)

    def test_REQ_19_whole_streams_are_no_aborts(self):
        before = self.server.finished("abort")
        for _ in range(10):
            self.server.events("/v1/completions", {"prompt": "[[97]]"})
        self.assertEqual(self.server.finished("abort"), before)


class Lifecycle(unittest.TestCase):
    def test_503_while_loading(self):
        server = Server(wait=False, load_ms=700)
        for path in ("/health", "/v1/models"):
            status, headers, _ = server.request("GET", path)
            self.assertEqual((status, headers["Retry-After"]), (503, "1"))
        status, body = server.completion("a")
        self.assertEqual((status, body["error"]["type"]), (503, "server_error"))
        self.assertEqual(server.wait_ready(), "ready\n")
        self.assertEqual(server.request("GET", "/health")[0], 200)
        self.assertEqual(server.close()[0], 0)

    def test_failed_load_ends_the_server(self):
        server = Server(wait=False, fail_load=1, load_ms=50)
        self.assertEqual(server.proc.wait(10), 1)
        self.assertIn("no such luck", server.proc.stderr.read())
        server.close()

    def test_drain_lets_streams_finish(self):
        server = Server(step_us=5000)
        s = server.connect()
        s.sendall(post_bytes("/v1/completions",
                             {"prompt": "[[97 98]]*", "max_tokens": 100, "stream": True}))
        read_until(s, b"\n\n")
        server.proc.terminate()
        time.sleep(0.1)
        status, headers, _ = server.request("GET", "/health")
        self.assertEqual((status, headers["Retry-After"]), (503, "1"))
        self.assertEqual(server.completion("a")[0], 503)
        self.assertIn(b"[DONE]", read_all(s))
        s.close()
        self.assertEqual(server.proc.wait(5), 0)
        server.close()

    def test_drain_has_a_limit(self):
        server = Server(step_us=5000, shutdown_ms=300)
        s = server.connect()
        s.sendall(post_bytes("/v1/completions", {**ENDLESS, "stream": True}))
        read_until(s, b"\n\n")
        server.proc.terminate()
        self.assertEqual(server.proc.wait(3), 1)
        self.assertNotIn(b"[DONE]", read_all(s))
        s.close()
        self.assertIn("cut off", server.close()[1])

    def test_second_signal_ends_at_once(self):
        server = Server(step_us=5000)
        s = server.connect()
        s.sendall(post_bytes("/v1/completions", {**ENDLESS, "stream": True}))
        read_until(s, b"\n\n")
        server.proc.terminate()
        time.sleep(0.1)
        server.proc.terminate()
        self.assertEqual(server.proc.wait(2), 1)
        s.close()
        server.close()

    def test_unix_socket(self):
        import tempfile
        with tempfile.TemporaryDirectory() as d:
            server = Server(uds=f"{d}/sock")
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(f"{d}/sock")
                s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertEqual(statuses(read_all(s)), [200])
            self.assertEqual(server.close()[0], 0)

    def test_full_queue_is_429(self):
        server = Server(max_num_seqs=1, max_waiting=1, step_us=3000)
        held = [server.connect() for _ in range(2)]
        for s in held:
            s.sendall(post_bytes("/v1/completions", ENDLESS))
            time.sleep(0.05)
        status, headers, text = server.request("POST", "/v1/completions", ENDLESS)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        error = json.loads(text)["error"]
        self.assertEqual((error["type"], error["code"]),
                         ("rate_limit_error", "rate_limit_exceeded"))
        for s in held:
            s.close()
        server.at_rest()
        self.assertEqual(server.close()[0], 0)


if __name__ == "__main__":
    unittest.main()
