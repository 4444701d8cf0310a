"""Goal: a token that its caller has made is stored once, also where the call is sent again because its reply was lost;
its secret is not told to the coordinator, and it holds all the same. What is no id or no hash is refused by field.
"""

import hashlib
import json

import grpc
from cluster import Cluster, check
from tokens_test import TOKENS, run, wire

NUMBER, SECRET = "0123456789abcdef", "ab" * 32


def field(number, data):
    """A field of a message, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


WHOSE = field(1, b"again") + field(2, b"alice") + bytes([4 << 3, 1])  # TOKEN_USER
ID, HASH = field(6, NUMBER.encode()), field(7, hashlib.sha256(SECRET.encode()).digest())


def is_made_once(address, create):
    answers = [create(WHOSE + ID + HASH, timeout=30) for _ in range(3)]
    check(len(set(answers)) == 1, f"answers differ: {answers}")
    check(NUMBER.encode() in answers[0] and b"cairn-" not in answers[0], f"it has a text: {answers[0]}")
    listed = json.loads(run(address, "--json", "token", "list").stdout)["tokens"]
    check(sum(one["name"] == "again" for one in listed) == 1, f"tokens: {listed}")
    mine = {"CAIRN_TOKEN": f"cairn-{NUMBER}-{SECRET}"}
    check("alice, by token" in run(address, "token", "whoami", env=mine).stdout, "it holds")


def is_refused(create):
    for wrong, says in (
        (ID, "secret_sha256: 0 bytes; give the 32"),
        (HASH, "id: give 16 hexadecimal digits"),
        (field(6, b"G" * 16) + HASH, "id: give 16 hexadecimal digits"),
        (ID + field(7, b"x" * 31), "secret_sha256: 31 bytes"),
        (ID + field(7, b"x" * 32), "the token's id is taken by another one"),
    ):
        try:
            create(WHOSE + wrong, timeout=30)
        except grpc.RpcError as error:
            check(says in error.details(), f"{wrong}: no {says!r} in {error.details()}")
            continue
        check(False, f"{wrong} is taken")


def main():
    with Cluster(ps=0, workers=0, coordinator_flags=["--accept-tokens"]) as c:
        with grpc.insecure_channel(c.address, options=wire.CHANNEL_OPTIONS) as to:
            create = to.unary_unary(TOKENS + "CreateToken")
            is_made_once(c.address, create)
            is_refused(create)
            # Without both the coordinator makes it, as for a client of the release before.
            check(b"cairn-" in create(WHOSE, timeout=30), "the text is in the reply")


if __name__ == "__main__":
    main()
