"""Streams, through raw events and the official client."""

import json
import threading
import time
import unittest

import openai

from harness import Server, ServerTest, post_bytes, read_until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def messages(text):
    return [{"role": "user", "content": text}]


def script(*ids, endless=False):
    return "[[" + " ".join(map(str, ids)) + ("]]*" if endless else "]]")


class Streams(ServerTest):
    # Steps slow enough that the server gets to send one token before the next: it merges what a
    # client (or a busy machine) does not keep up with.
    options = {"step_us": 20000}

    def chat_events(self, text, **fields):
        return self.server.events(CHAT, {"messages": messages(text), **fields})

    def deltas(self, events):
        return [e["choices"][0]["delta"].get("content", "") for e in events[:-1] if e["choices"]]

    def whole(self, text, **fields):
        status, body = self.server.chat(text, **fields)
        self.assertEqual(status, 200, body)
        return body["choices"][0]

    def test_STR_01_whole_characters(self):
        events = self.chat_events(script(240, 159, 166, 153),
                                  stream_options={"include_usage": True})
        self.assertEqual("".join(self.deltas(events)), "\U0001f999")
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 5)  # with EOS

    def test_STR_02_ends_inside_a_character(self):
        text = script(97, 240, 159, 166, endless=True)
        events = self.chat_events(text, max_tokens=4)
        self.assertEqual("".join(self.deltas(events)), "a\ufffd")
        last = events[-2]["choices"][0]
        self.assertEqual((last["finish_reason"], last["delta"]["content"]), ("length", "\ufffd"))
        whole = self.whole(text, max_tokens=4)
        self.assertEqual((whole["message"]["content"], whole["finish_reason"]),
                         ("a\ufffd", "length"))

    def test_STR_03_hold_back(self):
        text = script(*b"DEFGHIJ", endless=True)
        events = self.chat_events(text, stop="DEFGHIJ", max_tokens=50)
        self.assertEqual(self.deltas(events), ["", ""])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "stop")
        self.assertEqual(events[-2]["choices"][0]["stop_reason"], "DEFGHIJ")

    def test_STR_04_stop_inside_a_token(self):
        self.assertEqual(self.whole(script(259), stop="el")["message"]["content"], "h")
        self.assertEqual(self.whole(script(259), stop="el", include_stop_str_in_output=True)
                         ["message"]["content"], "hel")

    def test_STR_06_usage_chunk(self):
        for path, body in ((CHAT, {"messages": messages(script(97))}),
                           (COMPLETIONS, {"prompt": script(97)})):
            with_it = self.server.events(path, {**body, "stream_options": {"include_usage": True}})
            chunks = [e for e in with_it[:-1] if e["choices"] == []]
            self.assertEqual(len(chunks), 1)
            self.assertIs(with_it[-2], chunks[0])
            self.assertEqual(chunks[0]["usage"]["completion_tokens"], 2)
            without = self.server.events(path, body)
            self.assertTrue(all(e["choices"] for e in without[:-1]))
            self.assertEqual(without[-1], "[DONE]")

    def test_STR_07_usage_member(self):
        events = self.chat_events(script(97, 98), stream_options={"include_usage": True})
        self.assertTrue(all(e["usage"] is None for e in events[:-2]))
        events = self.chat_events(script(97, 98))
        self.assertTrue(all("usage" not in e for e in events[:-1]))

    def test_STR_08_finish_reasons(self):
        self.assertEqual(self.whole(script(97, 98, 99, endless=True), max_tokens=3)
                         ["finish_reason"], "length")
        self.assertEqual(self.whole(script(97, 98), max_tokens=3)["finish_reason"], "stop")

    def test_STR_10_logprob_bytes(self):
        content = self.whole(script(240, 159, 166, 153), logprobs=True, top_logprobs=2,
                             max_tokens=4)["logprobs"]["content"]
        self.assertEqual([c["bytes"] for c in content], [[240], [159], [166], [153]])
        for c in content:
            self.assertEqual(len(c["top_logprobs"]), 2)
            self.assertEqual(c["top_logprobs"][0]["bytes"], c["bytes"])
            self.assertEqual(c["top_logprobs"][0]["logprob"], c["logprob"])
            self.assertEqual(c["top_logprobs"][1]["bytes"], [c["bytes"][0] + 1])

    def test_order_and_members(self):
        events = self.chat_events(script(97, 98))
        self.assertEqual(events[0]["choices"], [{
            "index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
            "finish_reason": None}])
        self.assertEqual(self.deltas(events), ["", "a", "b", ""])
        for key in ("id", "created", "model", "object"):
            self.assertEqual(len({e[key] for e in events[:-1]}), 1)
        self.assertEqual(events[0]["object"], "chat.completion.chunk")
        self.assertEqual([("system_fingerprint" in e) for e in events[:-1]],
                         [False, False, False, True])
        finishes = [e["choices"][0]["finish_reason"] for e in events[:-1]]
        self.assertEqual(finishes, [None, None, None, "stop"])
        events = self.server.events(COMPLETIONS, {"prompt": script(97, 98), "echo": True})
        self.assertEqual([e["choices"][0]["text"] for e in events[:-1]],
                         [script(97, 98) + "a", "b", ""])
        self.assertIsNone(events[0]["usage"])

    def test_chunks_count_tokens(self):
        events = self.chat_events(script(97, endless=True), max_tokens=40)
        chunks = self.deltas(events)[1:]  # without the role chunk
        self.assertEqual("".join(chunks), "a" * 40)
        self.assertNotIn("", chunks)
        self.assertGreater(len(chunks), 20)  # merging is the exception

    def test_continuous_usage(self):
        events = self.chat_events(script(97, 98), stream_options={
            "include_usage": True, "continuous_usage_stats": True})
        self.assertEqual([e["usage"]["completion_tokens"] for e in events[:-1]], [0, 1, 2, 3, 3])

    def test_stream_interval(self):
        events = self.chat_events(script(*b"abcdef"), stream_interval=3)
        self.assertEqual("".join(self.deltas(events)), "abcdef")
        self.assertLessEqual(len(events), 6)

    def test_choices_and_prompts_are_numbered(self):
        events = self.server.events(COMPLETIONS, {
            "prompt": [script(97), script(98, 99)], "n": 2,
            "stream_options": {"include_usage": True}})
        texts = {}
        for e in events[:-2]:
            c = e["choices"][0]
            texts[c["index"]] = texts.get(c["index"], "") + c["text"]
        self.assertEqual(texts, {0: "a", 1: "a", 2: "bc", 3: "bc"})
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 2 + 2 + 3 + 3)

    def test_error_inside_a_stream(self):
        status, body = self.server.post(COMPLETIONS, {"prompt": "[[nan]]", "stream": True})
        self.assertError((status, body), 500, kind="server_error", code="nonfinite_logits")
        events = self.chat_events("[[97 98 nan]]")
        self.assertEqual([e["choices"][0]["delta"]["content"] for e in events[:3]], ["", "a", "b"])
        self.assertEqual(len(events), 5)
        self.assertEqual(events[3]["error"]["type"], "server_error")
        self.assertEqual(events[3]["error"]["code"], "nonfinite_logits")

    def test_stream_options_need_stream(self):
        self.assertError(self.server.completion("a", stream_options={"include_usage": True}),
                         param="stream_options")

    def test_head(self):
        with self.server.connect() as s:
            s.sendall(post_bytes(COMPLETIONS, {"prompt": script(97), "stream": True}))
            head = read_until(s, b"\r\n\r\n").split(b"\r\n\r\n")[0].decode()
            self.assertIn("Cache-Control: no-cache", head)
            self.assertIn("X-Accel-Buffering: no", head)
            read_until(s, b"0\r\n\r\n")
            s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")  # the connection goes on
            self.assertIn(b" 200 OK", read_until(s, b"}"))


class Client(ServerTest):
    options = {"step_us": 1000, "max_num_seqs": 16}

    def setUp(self):
        self.client = self.server.client()

    def test_chat_and_completions(self):
        answer = self.client.chat.completions.create(model="fake", messages=messages(script(104, 105)))
        self.assertEqual(answer.choices[0].message.content, "hi")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.completion_tokens, 3)
        answer = self.client.completions.create(model="fake", prompt=script(104, 105), n=2)
        self.assertEqual([c.text for c in answer.choices], ["hi", "hi"])
        self.assertEqual(self.client.models.list().data[0].id, "fake")
        self.assertEqual(self.client.models.retrieve("fake").owned_by, "quern")

    def test_streams(self):
        stream = self.client.chat.completions.create(
            model="fake", messages=messages(script(104, 105)), stream=True,
            stream_options={"include_usage": True}, logprobs=True, top_logprobs=1)
        chunks = list(stream)
        self.assertEqual("".join(c.choices[0].delta.content for c in chunks if c.choices), "hi")
        self.assertEqual(chunks[-1].usage.completion_tokens, 3)
        entries = [e for c in chunks if c.choices and c.choices[0].logprobs
                   for e in c.choices[0].logprobs.content]
        self.assertEqual([e.token for e in entries], ["h", "i", "<|e|>"])
        stream = self.client.completions.create(model="fake", prompt=script(104), stream=True)
        self.assertEqual("".join(c.choices[0].text for c in stream), "h")

    def test_stop_and_seed(self):
        def run(**fields):
            return self.client.completions.create(model="fake", prompt="seeded", max_tokens=20,
                                                  **fields).choices[0].text
        self.assertEqual(run(seed=1), run(seed=1))
        self.assertNotEqual(run(seed=1), run(seed=2))
        text = run(seed=1)
        self.assertEqual(run(seed=1, stop=[text[5:7]]), text[:text.index(text[5:7])])

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as e:
            self.client.chat.completions.create(model="fake", messages=messages("a"), temperature=9)
        self.assertEqual(e.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as e:
            self.client.chat.completions.create(model="other", messages=messages("a"))
        self.assertEqual(e.exception.code, "model_not_found")
        self.assertTrue(e.exception.request_id)
        with self.assertRaises(openai.BadRequestError) as e:
            self.client.completions.create(model="fake", prompt="a" * 5000)
        self.assertEqual(e.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.InternalServerError):
            self.client.completions.create(model="fake", prompt="[[nan]]")

    def test_SMP_05_seeds_hold_among_others(self):
        def run(**fields):
            return self.client.completions.create(model="fake", prompt="s", temperature=1,
                                                  **fields).choices[0].text
        alone = run(seed=7)
        out = [None] * 8
        def one(i):
            out[i] = run(seed=7) if i == 0 else run()
        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(out[0], alone)
        self.assertGreater(len(set(out)), 1)

    def test_disconnect_in_the_middle(self):
        stream = self.client.chat.completions.create(
            model="fake", messages=messages(script(97, endless=True)), max_tokens=4000, stream=True)
        for _ in range(3):
            next(iter(stream))
        stream.close()
        self.server.at_rest(1)

    def test_32_streams_alone_and_together(self):
        def run(i):
            stream = self.client.chat.completions.create(
                model="fake", messages=messages(f"stream {i}"), max_tokens=30 + i, seed=i,
                temperature=1, stream=True)
            return "".join(c.choices[0].delta.content or "" for c in stream)
        alone = [run(i) for i in range(32)]
        self.assertEqual(len(set(alone)), 32)
        together = [None] * 32
        def one(i):
            together[i] = run(i)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(together, alone)


class Pings(unittest.TestCase):
    def test_silent_streams_get_comments(self):
        server = Server(sse_ping_s=1, step_us=2500000)
        with server.connect() as s:
            s.sendall(post_bytes(COMPLETIONS, {"prompt": script(97), "stream": True,
                                               "max_tokens": 1}))
            start = time.time()
            read_until(s, b": ping\n\n")
            self.assertLess(time.time() - start, 2)
            data = read_until(s, b"[DONE]")
            self.assertIn(b'"text":"a"', data)
        self.assertEqual(server.close()[0], 0)


if __name__ == "__main__":
    unittest.main()
