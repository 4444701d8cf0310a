"""Goal: docs_paths.py finds each kind of fault that is planted, and none in a tree without faults.

A check that cannot fail is a defect.
"""

import os
import tempfile

from docs_paths import check_tree, may_include

ARCHITECTURE = """# Architecture

See [words](#words), [words again](#words-1), [the test](contributing.md#test), [the README](../README.md),
[web](https://x.y/z.md#a), `server/core.{h,cc}`, `./server/core.h`, `server/*.cc` in [a folder](../server), `server/`.
`Core::Step` of `class Core`, `Core::kState`, `PartitionReply` and `NodeMessage`. Not ours: `model.safetensors`,
`/data/x`, `out/`, `certs/alice`, `server/NAME.cc`.

## Words

```
server/run.sh --set path=server/core.cc certs/nobody /server/none.cc    # not a [link](none.md)
```

## Words
"""

CLEAN = {
    "README.md": "# Cairn\n\n[docs](docs/architecture.md#words) and `docs/contributing.md`\n",
    "docs/architecture.md": ARCHITECTURE,
    "docs/contributing.md": "# Contributing\n\n## Test!\n\n[`Words`](architecture.md#words)\n",
    "server/README.md": "# server/\n\n`core.h`, `core_parts`, `parts/`, `a_field`.\n\n"
    "| file | what |\n|---|---|\n| `core` | x |\n| `parts/` | x |\n\n" + may_include("server"),
    "server/core.h": "// docs/architecture.md#words, README.md\n"
    "class Core {\n  PartitionReply Step();\n  enum { kState };\n};\n",
    "server/core.cc": '// A design of our own. Writes report.md, "$dir/NOTES.md".\n',
    "server/run.sh": "echo",
    "server/parts/core_parts.cc": "",
    "proto/README.md": "# proto/\n",
    "proto/a.proto": "message NodeMessage { int32 a_field = 1; }",
}

# Planted file, its text (or what to replace in the clean text), the expected message.
FAULTS = [
    ("docs/a.md", "`server/gone.cc`", "docs/a.md: names server/gone.cc, which is not there"),
    ("docs/a.md", "`gone.h`", "names gone.h"),
    ("docs/a.md", "`server/core.{h,gone}`", "names server/core.{h,gone}"),
    ("docs/a.md", "`server/gone*`", "names server/gone*"),
    ("docs/a.md", "`server/gone/`", "names server/gone/"),
    ("README.md", "```\n./server/gone.sh --x\n```", "names ./server/gone.sh"),
    ("proto/README.md", "`cairn/gone.proto`", "names cairn/gone.proto"),
    ("docs/a.md", "[x](gone.md)", "links to gone.md"),
    ("docs/a.md", "[x](../server/gone.h)", "links to ../server/gone.h"),
    ("docs/a.md", "# A\n\n[x](#b)", "links to #b, which is not a heading of docs/a.md"),
    ("docs/a.md", "[x](architecture.md#words-2)", "links to #words-2, which is not a heading of docs/architecture.md"),
    ("docs/a.md", "```\n# Fenced\n```\n[x](#fenced)", "links to #fenced"),
    ("README.md", "[x](server/core.h#words)", "links to #words, which is not a heading of server/core.h"),
    ("docs/a.md", "`Core::Gone`", "names Core::Gone, which no source has"),
    ("docs/a.md", "`Gone::Step`", "names Gone::Step, which no source has"),
    ("docs/a.md", "`GoneMessage`", "names GoneMessage, which no source has"),
    ("proto/README.md", "`gone_parts`", "names gone_parts"),
    ("proto/README.md", "`gone/`", "names gone/"),
    ("proto/README.md", "| file | x |\n|---|---|\n| `core` | x |", "names core, and no such file stands beside it"),
    ("server/a.h", "// docs/gone.md", "refers to docs/gone.md"),
    ("server/a.h", "// GONE.md", "refers to GONE.md"),
    ("server/a.h", "// docs/architecture.md#gone", "refers to docs/architecture.md#gone, which is not a heading there"),
    ("server/a.h", "// x\n// (design §3)", 'server/a.h:2: "§" refers'),
    ("server/a.py", '"""as the design, "Layout", has it"""', "refers to a design that is not in the tree"),
    ("server/a.h", "// see design.md", "refers to a design that is not in the tree"),
    ("server/README.md", "# server/", 'server/README.md: lacks "May include:'),
    ("cmake/a.cmake", "", "cmake: has no README.md"),
    ("client/cli/a.cc", "", "client/cli: has no README.md"),
]


def problems_with(planted):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **planted}.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        return check_tree(root)


def main():
    clean = problems_with({})
    assert not clean, clean
    for path, text, says in FAULTS:
        planted = {path: text}
        if path.startswith("client/"):
            planted["client/README.md"] = f"# client/\n\n{may_include('client')}\n"
        found = problems_with(planted)
        assert len(found) == 1 and says in found[0], (path, text, says, found)
    print(f"{len(FAULTS)} planted faults found, none in the clean tree")


if __name__ == "__main__":
    main()
