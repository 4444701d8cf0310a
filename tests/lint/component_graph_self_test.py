"""Plants cycles among parts of a core and checks that component_graph.py finds them."""

import component_graph

GOOD = {
    "ground.h": "struct Tick {};\nstruct Ground {\n  Low& low;\n};\nclass Component {\n protected:\n  Low& low_;\n};\n",
    "low.h": "class Low {\n public:\n  void Do();\n\n private:\n  int count_ = 0;  // High asks for it\n};\n",
    "high.h": '#include "coordinator/core/low.h"\n'
    "class High : Component {\n private:\n  const Low& low_;\n  Other other_;\n};\n",
    "other.h": "class Other : Component {\n  std::optional<Low> own_;\n};\n",
}

# How Low holds, or receives, a part above it.
HOLDS = (
    "High& high_;",
    "High* high_ = nullptr;",
    "High *high_, *more_;",
    "cairn::High& high_;",
    "std::optional<High> high_;",
    "std::unique_ptr<const High> high_;",
    "std::vector<High*> high_;",
    "struct Parts {\n    High& high;\n  };\n  Parts parts_;",
    "void Do(High& high);",
    "Ground ground_;",
)
# Files that differ from GOOD, and the expected message.
FAULTS = [({"low.h": "class Low {\n  %s\n};\n" % holds}, "calls form a cycle") for holds in HOLDS] + [
    ({"low.h": "class Low : public Base, private High {\n};\n"}, "calls form a cycle"),
    ({"other.h": "class Other : Component {\n  const High& high_;\n};\n"}, "calls form a cycle: High -> Other -> High"),
    ({"low.h": '#include "coordinator/core/high.h"\nclass Low {\n};\n'}, "headers include each other"),
    ({"low.h": "class High;\nclass Low {\n};\n"}, "low.h: declares High"),
    ({"low.h": "class Low {\n  class High* high_;\n};\n"}, "low.h: declares High"),
    ({"other.h": "class Other : Component {\n  std::function<void()> call_;\n};\n"}, "Other holds a std::function"),
]


def main():
    problems, graph = component_graph.check(GOOD)
    assert problems == [], problems
    assert graph["High"] == {"Component", "Low", "Other"}, graph
    assert component_graph.order(graph).index("Low") < component_graph.order(graph).index("High")
    for changed, expected in FAULTS:
        problems, _ = component_graph.check({**GOOD, **changed})
        assert any(expected in problem for problem in problems), (changed, expected, problems)
    print(f"{len(FAULTS)} planted faults were found")


if __name__ == "__main__":
    main()
