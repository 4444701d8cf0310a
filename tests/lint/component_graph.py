"""Checks that calls between the parts of a core form no cycle (coordinator/core/component.h and
server/core/partition_core.h list them).

    component_graph.py FOLDER...    prints problems, one per line, or the parts in order; exit code 1 if there are any

A part can call another only through an object of that class that it holds or receives. So every class that is named in
the body of a class in a header is an edge, and so is each base class. Anything that could hide a call is rejected:
std::function, and classes declared without their header.
"""

import os
import re
import sys

CLASS = re.compile(r"^(?:class|struct) (\w+)(?: final)?(?:\s*:\s*([\w:,\s]+?))?\s*\{", re.M)
FORWARD = re.compile(r"\b(?:class|struct) (\w+)\s*[;*&]")


def body_of(text, brace):
    """The text from a brace to its closing brace."""
    depth = 0
    for place in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[brace : place + 1]
    return text[brace:]


def classes(texts):
    """By name of class: (file, the text of its head and its body)."""
    found = {}
    for name, text in texts.items():
        plain = re.sub(r"//[^\n]*|\"[^\"\n]*\"", "", text)
        for match in CLASS.finditer(plain):
            found[match.group(1)] = (name, (match.group(2) or "") + body_of(plain, match.end() - 1))
    return found


def edges(found):
    return {name: (set(re.findall(r"\w+", body)) & set(found)) - {name} for name, (_, body) in found.items()}


def cycle(graph):
    """The names on a cycle, with the first one repeated at the end; empty if there is none."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :] + [name]
        if name in done:
            return []
        path.append(name)
        for other in sorted(graph.get(name, ())):
            if circle := visit(other):
                return circle
        path.pop()
        done.add(name)
        return []

    for name in sorted(graph):
        if circle := visit(name):
            return circle
    return []


def order(graph):
    """Sorts the classes so that each follows those that it calls."""
    placed = []

    def place(name):
        for other in sorted(graph[name]):
            if other not in placed:
                place(other)
        if name not in placed:
            placed.append(name)

    for name in sorted(graph):
        place(name)
    return placed


# Classes that every part of a core uses, and those that hold or dispatch to parts.
GROUNDS = {
    "Component": {"Ground", "Component", "PartitionLayer", "WorkerLayer", "OutputLayer", "ClusterCore", "StepContext"},
    "CopyContext": {"CopyContext"},
}


def parts_of(graph):
    parts = set()
    for ground, others in GROUNDS.items():
        if ground in graph:
            parts |= {name for name in graph if ground in graph[name]} | others
    return parts


def check(texts):
    """texts: by file name. Returns the problems, and the graph of classes."""
    problems = []
    found = classes(texts)
    graph = edges(found)
    if circle := cycle(graph):
        text = " -> ".join(circle)
        problems.append(f"calls form a cycle: {text}; let the dispatcher, or a domain event, do it")
    includes = {
        name: {i for i in re.findall(r'#include "\w+/core/(\w+\.h)"', text) if i in texts}
        for name, text in texts.items()
    }
    if circle := cycle(includes):
        problems.append("headers include each other: " + " -> ".join(circle))
    for name, text in texts.items():
        plain = re.sub(r"//[^\n]*", "", text)
        for declared in FORWARD.findall(plain):
            if declared in found:
                problems.append(
                    f"{name}: declares {declared}, which has a header: include it, so that its place is seen"
                )
    for part in parts_of(graph) & set(found):
        if "std::function" in found[part][1]:
            problems.append(f"{found[part][0]}: {part} holds a std::function: nobody sees whom it calls")
    return problems, graph


def check_folder(folder):
    texts = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".h"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                texts[name] = f.read()
    problems, graph = check(texts)
    parts = parts_of(graph)
    lost = parts - set(graph)
    if len(parts) < 10 or lost:
        problems.append(f"{len(parts)} parts were found in {folder}, without {lost}: is that the core's folder?")
    for problem in problems:
        print(problem)
    if not problems:
        print("parts, each after those that it calls: " + ", ".join(n for n in order(graph) if n in parts))
    return not problems


def main():
    return 0 if all([check_folder(folder) for folder in sys.argv[1:]]) else 1


if __name__ == "__main__":
    sys.exit(main())
