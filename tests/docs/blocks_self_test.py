"""blocks.py sees what is wrong with marks, and what a block did not print."""

import sys

from blocks import missing, parse

PAGE = """# Page

<!-- run: one; needs: etcd -->
```sh
cairn jobs
```

<!-- output: one in up.log -->
```text
no jobs
```

<!-- not run: three hosts -->
```sh
cairn nodes
```

```textproto
name: "a"
```
"""
PRINTED = """epoch 1/4 - 1.5s - loss: 0.6048 - digest 65b1ef95b7aabeea1b01f0c3c7142f22
between
NAME   STATE  WORK
ps-0   alive  1 primary
ready in 0.3 s: 127.0.0.1:4711, logs in /tmp/a/b/cairn-data
"""
FAULTS = (
    ("```sh\ncairn jobs\n```\n", "commands without"),
    ("```\ncairn jobs\n```\n", "does not say ```sh"),
    ("<!-- run: a -->\ntext\n", "a mark without a fence"),
    ("<!-- run: a -->\n<!-- run: b -->\n", "a mark follows a mark"),
    ("<!-- output: a -->\n```text\nx\n```\n", "is not run before it"),
    ("<!-- not run:  -->\n```sh\nx\n```\n", "without a reason"),
    ("<!-- run: a -->\n```sh\nx\n```\n<!-- run: a -->\n```sh\nx\n```\n", "two blocks are called a"),
)
DIGEST = "65b1ef95b7aabeea1b01f0c3c7142f22"
SAME = (
    f"epoch 1/4 - 12.0s - loss: 0.61 - digest {'0' * 32}",
    "NAME STATE  WORK\nps-0 alive 3 primary",
    f"epoch 2/4 - 99ms - loss: 1e-05 - digest {DIGEST}\n...\nready in 2 s: 127.0.0.1:7070, logs in cairn-data",
)
OTHER = ("epoch 1/4 - 1.5s - accuracy: 0.6048", "ps-0 alive 1 primary\nbetween", "ps-0 dead 1 primary")


def main():
    blocks, problems = parse("a.md", PAGE)
    assert not problems, problems
    assert [(b.kind, b.name, b.needs, b.file, b.line) for b in blocks] == [
        ("run", "one", "etcd", None, 4),
        ("output", "one", None, "up.log", 9),
        ("not run", "three hosts", None, None, 14),
    ]
    assert blocks[0].text == "cairn jobs\n"
    for text, fault in FAULTS:
        found = parse("a.md", text)[1]
        assert len(found) == 1 and fault in found[0], (text, found)
    for text in SAME:
        assert missing(text, PRINTED) is None, (text, missing(text, PRINTED))
    for text in OTHER:
        assert missing(text, PRINTED) is not None, text
    return 0


if __name__ == "__main__":
    sys.exit(main())
