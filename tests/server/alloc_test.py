"""Every allocation of the server's code made to fail once: answers may be errors, nothing else."""

import json
import os
import signal
import unittest

from harness import Server, post_bytes, read_all, statuses

REQUESTS = [
    post_bytes("/v1/completions", {"prompt": ["[[97 98]]", "[[99]]"], "logprobs": 2, "echo": True,
                                   "n": 2, "stop": ["x", "y"], "logit_bias": {"5": 1},
                                   "return_token_ids": True, "prompt_logprobs": 1},
               "Connection: close\r\n"),
    post_bytes("/v1/chat/completions", {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "[[97 98]]"}]},
                     {"role": "assistant", "content": "c"}],
        "continue_final_message": True, "echo": True, "stream": True, "logprobs": True,
        "top_logprobs": 1, "stream_options": {"include_usage": True}}, "Connection: close\r\n"),
    post_bytes("/tokenize", {"prompt": "abc", "return_token_strs": True}, "Connection: close\r\n"),
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /v1/models/fake HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
]


class Allocations(unittest.TestCase):
    def ask(self, server, request):
        with server.connect() as s:
            s.sendall(request)
            return read_all(s, 10)

    def test_each_failing_allocation(self):
        for request in REQUESTS:
            server = Server(step_us=100)
            name = request.split(b" HTTP")[0]
            good = self.ask(server, request)
            self.assertEqual(statuses(good), [200], name)
            failures, rounds, unharmed = 0, 0, 0
            while rounds < 2000 and unharmed < 8:
                rounds += 1
                os.kill(server.proc.pid, signal.SIGUSR1)
                try:
                    data = self.ask(server, request)
                except ConnectionError:
                    self.fail((name, rounds, server.close()[1][:4000]))
                if server.proc.poll() is not None:
                    self.fail((name, rounds, server.close()[1][:4000]))
                if data.endswith((b"0\r\n\r\n", b"}", b"\n")) and statuses(data) == [200]:
                    if b'{"error"' not in data:
                        unharmed += 1  # some failures do no harm; many in a row: none is left
                        continue
                unharmed = 0
                failures += 1
                status = statuses(data)
                self.assertIn(status, ([], [200], [500], [503]), (name, rounds, data[:300]))
                if status and status[0] != 200 and b'{"error"' in data:
                    json.loads(data.split(b"\r\n\r\n", 1)[1])
            self.assertGreater(failures, 1, name)
            self.assertLess(rounds, 2000, name)
            os.kill(server.proc.pid, signal.SIGUSR2)
            server.at_rest()
            self.assertEqual(server.request("GET", "/health")[0], 200)
            code, err = server.close()
            self.assertEqual(code, 0, err)


if __name__ == "__main__":
    unittest.main()
