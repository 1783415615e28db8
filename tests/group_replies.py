"""A judge model for groups, as a function of the request: each response is worth its [[quality=7]]."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator

from referee.testing import Question

RESPONSE = re.compile(r"^Response ([A-Z]{6}):\n<<<response (\w+)\n(.*?)\n\2 response>>>$", re.MULTILINE | re.DOTALL)
QUALITY = re.compile(r"\[\[quality=(\d+)\]\]")
TAG = re.compile(r"<(verdict-\w+)>")


def group_answer(near: int = 0) -> Callable[[Question], str]:
    """Answers lists and pairs. Of two that differ by at most `near` it prefers the one shown first."""

    def answer(question: Question) -> str:
        return reply_to(question.messages[-1].text, near)

    return answer


def reply_to(text: str, near: int = 0) -> str:
    """The reply to the user message of a request, in the form that it asks for; of one response, its score."""
    found = [
        (label, int(mark[1]) if (mark := QUALITY.search(shown)) else 1) for label, _, shown in RESPONSE.findall(text)
    ]
    tag = TAG.search(text)
    if not found:
        score = int(QUALITY.findall(text)[-1]) if QUALITY.search(text) else 1
        return f"Fine.\n<{tag[1]}>{score}</{tag[1]}>" if tag else json.dumps({"reason": "Fine.", "score": score})
    if "The two responses" in text:
        (one, first), (other, second) = found
        better = one if first > second or second - first <= near else other
        verdict = "tie" if first == second else better
        why = f"{verdict} says more." if verdict != "tie" else "Nothing sets them apart."
        return f"{why}\n<{tag[1]}>{verdict}</{tag[1]}>" if tag else json.dumps({"reason": why, "verdict": verdict})
    if tag:
        return f"<{tag[1]}>{'; '.join(f'{label}={score}' for label, score in found)}</{tag[1]}>"
    each = [{"label": label, "reason": f"Worth {score}.", "score": score} for label, score in found]
    return json.dumps({"responses": each})


@contextlib.contextmanager
def group_provider(near: int = 0) -> Iterator[str]:
    """The same over HTTP on loopback; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", "content": reply_to(asked["messages"][-1]["content"], near)}
            body = json.dumps(
                {
                    "model": "simulated",
                    "choices": [{"message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 10},
                }
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Silence."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
