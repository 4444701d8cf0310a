"""Counts the data members and the methods of C++ classes, in code as clang-format writes it: lint.py refuses classes
that have too many. A class of many members is several things; a class of many methods is used for several things.

    class_sizes.py ROOT    prints each class with its members and methods, the largest first

What counts: each variable of the class that is not static, each function that it declares, constructors and operators
too. What is inherited does not count, nor what classes inside it have: these are counted by themselves.
"""

import os
import re
import sys

MEMBERS_MAX = 15
METHODS_MAX = 40
FOLDERS = ("client/", "common/", "coordinator/", "replay/", "server/", "worker/")
# Plain values: each member is an option, a field of a message or a number of a formula, and has no rule of its own.
VALUES = {
    "client/cli/main.cc": {"Invocation"},  # the options of all commands
    "common/model/recurrent.h": {"Recurrence"},
    "common/tensor/frame.h": {"Frame"},
    "server/core/partition_settings.h": {"PartitionSettings"},
    "worker/backend/cudnn/kernels/recurrent.h": {"CellStep"},
    "worker/backend/cudnn/recurrence.h": {"StepRefs"},
}

# Comments go; texts and characters become a 0, so that no brace or semicolon of theirs is taken for the code's.
COMMENT_OR_TEXT = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|(?:u8|u|U|L)?R"(?P<end>\w*)\(.*?\)(?P=end)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<!\w)'(?:[^'\\\n]|\\.)+'",
    re.S,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ATTRIBUTE = r"(?:ABSL_\w+(?:\([^)]*\))?|\[\[[^\]]*\]\]|alignas\([^)]*\))"
HEAD = re.compile(
    r"(?<!enum )(?<!friend )\b(?:class|struct)\s+(?:%s\s+)*([\w:]+(?:<[^;{}()]*>)?)(?:\s+final)?"
    r"\s*(?::(?!:)[^;{}]*)?\{" % ATTRIBUTE
)
# ABSL_GUARDED_BY(mutex_), alignas(64): may stand around a member and is not a function of the class.
ANNOTATION = re.compile(r"\b(?:ABSL_\w+|alignas|noexcept|decltype)\s*\((?:[^()]|\([^()]*\))*\)|\[\[[^\]]*\]\]")
ACCESS = re.compile(r"^(?:(?:public|private|protected)\s*:\s*)+")
OPERATOR = re.compile(r"\boperator\s*(?:\(\)|\[\]|[^\w\s(]+|[\w:]+(?:\s*[*&])*)")
NOTHING = re.compile(r"^(?:using|typedef|friend|static_assert|enum)\b")
INNER = re.compile(r"^(?:class|struct|union)\b[^;(]*\{\}")


def plain(text):
    text = COMMENT_OR_TEXT.sub(lambda match: " " if match.group(0).startswith("/") else "0", text)
    return DIRECTIVE.sub("", text)


def closing(text, brace):
    """The place of the brace that closes this one."""
    depth = 0
    for place in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def declarations(body):
    """Each declaration of a class's body, without what stands between its braces: `int a{}`, `void F() {}`."""
    said, place, parentheses = "", 0, 0
    while place < len(body):
        char = body[place]
        place += 1
        if char == "{":
            place = closing(body, place - 1) + 1
            said += "{}"
            # A function ends here. What a comma or a brace follows is a member, or a list of members set by a
            # constructor; what a semicolon or a name follows, an enum or a class, goes on to the semicolon.
            follows = body[place:].lstrip()[:1]
            ends = parentheses == 0 and "(" in said.split("{}")[0] and follows not in (";", ",", "{")
        else:
            parentheses += {"(": 1, ")": -1}.get(char, 0)
            ends = char == ";" and parentheses == 0
            said += "" if ends else char
        if ends:
            yield re.sub(r"\s+", " ", said).strip()
            said = ""


def without_brackets(said):
    """Without what templates and arrays have between their brackets."""
    less = re.sub(r"<[^<>]*>|\[[^\[\]]*\]", "", said)
    return less if less == said else without_brackets(less)


def count(body):
    """(names of members, names of methods) of a class's body without its braces."""
    members, methods = [], []
    for said in declarations(body):
        said = ANNOTATION.sub("", ACCESS.sub("", said))
        said = without_brackets(OPERATOR.sub("operator_", said)).strip()
        said = re.sub(r"^template\s*(?:requires\b[^;{]*?\)\s*)?", "", said)
        if not said or NOTHING.match(said):
            continue
        inner = INNER.match(said)
        if inner or re.match(r"^(?:class|struct|union) [\w:]+$", said):
            named = said[inner.end() :].strip() if inner else ""
            if named:  # struct {...} name;
                members.append(named)
            continue
        head = re.split(r"=|\{", said)[0]
        if "(" in head:
            methods.append((head.split("(")[0].split() or ["?"])[-1])
        elif not re.search(r"\b(?:static|constexpr)\b", head):
            for one in re.sub(r"\{[^}]*\}|\([^()]*\)", "", said).split(","):
                words = re.split(r"=|(?<!:):(?!:)", one)[0].split()
                members += [words[-1].strip("*&")] if words else []
    return members, methods


def classes(text):
    """(name, members, methods) of each class of a file, inner ones too."""
    text = plain(text)
    for match in HEAD.finditer(text):
        members, methods = count(text[match.end() : closing(text, match.end() - 1)])
        yield match.group(1), members, methods


def check_classes(path, text):
    if not path.startswith(FOLDERS) or not path.endswith((".h", ".cc", ".cu")):
        return
    for name, members, methods in classes(text):
        if name in VALUES.get(path, ()) and not methods[METHODS_MAX:]:
            continue
        for what, most, found in (("members", MEMBERS_MAX, members), ("methods", METHODS_MAX, methods)):
            if len(found) > most:
                todo = "give what belongs together a class of its own"
                yield f"{path}: {name} has {len(found)} {what}, at most {most}; {todo}"


def main(root):
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f != "build" and not f.startswith(".")]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if path.startswith(FOLDERS) and name.endswith((".h", ".cc", ".cu")):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    found += [(len(m), len(f), c, path) for c, m, f in classes(file.read())]
    for members, methods, name, path in sorted(found, reverse=True):
        print(f"{members:3} members {methods:3} methods  {name} ({path})")


if __name__ == "__main__":
    main(sys.argv[1])
