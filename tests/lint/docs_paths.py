"""Checks that what documents name exists: paths, links, anchors, functions, and the README.md of each folder.

    docs_paths.py ROOT        prints problems, one per line; exit code 1 if there are any

1. docs/*.md and every README.md: a path in backticks exists; so does one in a fenced block that begins with a folder of
   the tree. See candidate() for what counts as a path. In a folder's README, a name in the column "file" of a table
   and a name_with_underscores match a file of the folder (the latter may also be a word of the protos, the build or a
   script).
2. Relative links in them exist, and an #anchor is a heading of the target page.
3. docs/*.md: `Class::Function` occurs in the sources, and so does a `NameLikeThis`.
4. Every file of the tree: a .md file that it names exists, with the anchor; no file refers to a design that the tree
   does not have.
5. Each top folder and each folder of lint.py's FOLDERS has a README.md; those of FOLDERS say what the folder may
   include.

Only files that git would carry are checked, as in lint.py.
"""

import glob
import itertools
import os
import re
import sys

from lint import FOLDERS, files, read

FENCE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.M | re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.M)
TYPE = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+")
STEM = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+\*?")
SYMBOL = re.compile(r"([A-Z]\w*)::(~?\w+)(?:\(\))?")
DOCUMENT = re.compile(r"(?<![\w./<*{$-])((?:[\w.-]+/)*[\w.-]+\.md)(#[\w-]+)?\b")
# A design document was once kept outside of the tree.
LACKING = re.compile(r"§|\bdesign(?:\.md\b|'s\b|,? \"|,? section\b)", re.I)
SOURCES = (".h", ".cc", ".cu", ".proto", ".cmake")  # only files of the tree have names with these extensions
PLACEHOLDER = re.compile(r"NAME|[<>$~]|\.\.\.")


def is_document(path):
    return path.endswith(".md") and (path.startswith("docs/") or os.path.basename(path) == "README.md")


def without_fences(text):
    return FENCE.sub("", text)


def expand(path):
    """Expands a.{h,cc} to a.h and a.cc."""
    parts = [p[1:-1].split(",") if p.startswith("{") else [p] for p in re.split(r"(\{[\w.,]+\})", path)]
    return ["".join(p) for p in itertools.product(*parts)]


def candidate(token, tops):
    """Whether a word in backticks or a command is a path: it begins with a folder of the tree, or has a source's
    extension."""
    if PLACEHOLDER.search(token) or not re.fullmatch(r"[\w.*/{},+-]+", token) or token.startswith("/"):
        return False
    first = token.removeprefix("./").split("/")[0]
    return token.endswith(SOURCES) or ("/" in token.removeprefix("./") and first in tops)


def exists(root, folder, path):
    """Relative to the root of the tree, or to the document's folder."""
    return all(any(glob.glob(os.path.join(root, base, each)) for base in ("", folder)) for each in expand(path))


def slugs(text):
    """The anchors of a page, as GitHub creates them."""
    seen, found = {}, set()
    for heading in HEADING.findall(without_fences(text)):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        n = seen.get(slug, 0)
        seen[slug] = n + 1
        found.add(f"{slug}-{n}" if n else slug)
    return found


def check_anchor(root, page, anchor):
    return anchor in slugs(read(root, page))


def check_paths(root, path, text, tops):
    folder = os.path.dirname(path)
    plain = without_fences(text)
    named = [token.strip() for _, token in CODE.findall(plain)]
    named += [
        word
        for fence in FENCE.finditer(text)
        for word in re.split(r"[\s=,\"'()]+", fence.group(0))
        if "/" in word and not word.endswith("/")
    ]
    for token in dict.fromkeys(named):
        if candidate(token, tops) and not exists(root, folder, token):
            yield f"{path}: names {token}, which is not there"


def check_links(root, path, text):
    plain = CODE.sub("", without_fences(text))
    for target in LINK.findall(plain):
        if re.match(r"[a-z]+:", target):
            continue
        to, _, anchor = target.partition("#")
        page = os.path.normpath(os.path.join(os.path.dirname(path), to)) if to else path
        if not os.path.exists(os.path.join(root, page)):
            yield f"{path}: links to {to}, which is not there"
        elif anchor and (not page.endswith(".md") or not check_anchor(root, page, anchor)):
            yield f"{path}: links to #{anchor}, which is not a heading of {page}"


def check_file_tables(root, path, text):
    """file | ... | in a README: names with or without an extension, relative to the README's folder."""
    if not path.endswith("/README.md"):
        return
    inside = False
    for line in without_fences(text).splitlines():
        cells = [c.strip() for c in line.split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[1] == "file":
            inside = True
        elif inside:
            for _, token in CODE.findall(cells[1]):
                here = os.path.join(root, os.path.dirname(path), token)
                if not glob.glob(here) and not glob.glob(here + ".*"):
                    yield f"{path}: its table names {token}, and no such file stands beside it"


def check_stems(root, path, text, words):
    folder = os.path.join(root, os.path.dirname(path))
    if not path.endswith("/README.md"):
        return
    for token in dict.fromkeys(t for _, t in CODE.findall(without_fences(text))):
        if token.endswith("/") and re.fullmatch(r"[\w-]+/", token):
            found = os.path.isdir(os.path.join(folder, token)) or os.path.isdir(os.path.join(root, token))
        elif STEM.fullmatch(token):
            found = token in words or any(glob.glob(os.path.join(folder, deeper, token + "*")) for deeper in ("", "*"))
        else:
            continue
        if not found:
            yield f"{path}: names {token}, which is not there"


def check_symbols(path, text, sources, words):
    if not path.startswith("docs/"):
        return
    for token in dict.fromkeys(t for _, t in CODE.findall(without_fences(text))):
        match = SYMBOL.fullmatch(token.strip())
        if not match:
            if TYPE.fullmatch(token) and token not in words:
                yield f"{path}: names {token}, which no source has"
            continue
        of, name = match.groups()
        declared = re.compile(rf"\b(?:class|struct|enum)\s+{of}\b[^;]*?\{{.*?(?<!\w){re.escape(name)}\b", re.S)
        defined = re.compile(rf"\b{of}::{re.escape(name)}\b")
        if not any(of in s and (defined.search(s) or declared.search(s)) for s in sources):
            yield f"{path}: names {token}, which no source has"


def check_documents_named(root, path, text):
    if path.startswith("tests/lint/docs_paths"):
        return  # they contain example faults
    for match in LACKING.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f'{path}:{line}: "{match.group(0)}" refers to a design that is not in the tree; see docs/architecture.md'
    if path.endswith(".md"):
        return  # links and backticks are checked elsewhere
    for named, anchor in DOCUMENT.findall(text):
        folders = ("", os.path.dirname(path), "docs" if path == "mkdocs.yml" else "")
        at = [p for p in (os.path.join(f, named) for f in folders) if os.path.exists(os.path.join(root, p))]
        if not at:
            if "/" in named or named[0].isupper():  # report.md: a program's output
                yield f"{path}: refers to {named}, which is not there"
        elif anchor and not check_anchor(root, at[0], anchor[1:]):
            yield f"{path}: refers to {named}{anchor}, which is not a heading there"


def may_include(folder):
    """What a folder's README says its files may include besides the folder itself."""
    words = {"proto": "generated messages", "grpc": "gRPC", "*": "everything"}

    def of(entries):
        return ", ".join(words.get(entry) or f"`{entry}`" for entry in entries) or "nothing of ours"

    return f"May include: {of(FOLDERS[folder])}."


def check_readmes(root, tops):
    for folder in sorted(set(tops) | set(FOLDERS)):
        if not os.path.isdir(os.path.join(root, folder)):
            continue
        readme = f"{folder}/README.md"
        if not os.path.exists(os.path.join(root, readme)):
            yield f"{folder}: has no README.md; say in a paragraph what lives here and what it may use"
        elif folder in FOLDERS and may_include(folder) not in " ".join(read(root, readme).split()):
            yield f'{readme}: lacks "{may_include(folder)}", as tests/lint/lint.py has it'


def check_tree(root):
    paths = list(files(root))
    tops = sorted({p.split("/")[0] for p in paths if "/" in p})
    sources = [read(root, p) for p in paths if p.endswith((".h", ".cc", ".cu"))]
    others = [read(root, p) for p in paths if p.endswith((".proto", ".cmake", ".txt", ".py", ".sh"))]
    words = {word for text in others for word in re.findall(r"\w+", text)}
    types = words.union(*(TYPE.findall(text) for text in sources))
    problems = list(check_readmes(root, [t for t in tops if t != "docs"]))
    for path in paths:
        text = read(root, path)
        if is_document(path):
            problems += check_paths(root, path, text, tops)
            problems += check_links(root, path, text)
            problems += check_file_tables(root, path, text)
            problems += check_stems(root, path, text, words)
            problems += check_symbols(path, text, sources, types)
        problems += check_documents_named(root, path, text)
    return problems


def main():
    problems = check_tree(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
