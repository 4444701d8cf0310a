"""Goal: lint.py finds each kind of violation that is planted, and none in a tree without violations. A check that
cannot fail is a defect."""

import os
import tempfile

from lint import check_tree

# A class of all that must not be counted beside its 15 members and 40 methods.
FULL = (
    "// class Large { int a, b; };\n"
    "enum class Kind { kOne, kTwo };\n"
    "template <typename T>\n"
    "class ABSL_LOCKABLE Full final : public Base<T>, private Other {\n"
    " public:\n"
    "  using Map = std::map<int, std::string>;\n"
    "  friend class Other;\n"
    "  enum Order { kFirst, kLast };\n"
    "  struct Inner {\n    int a = 0, b[3] = {1, 2, 3};\n    void F() {}\n  };\n"
    "  static constexpr int kMany = 3;\n"
    "  static_assert(kMany > 2);\n"
    "  explicit Full(std::function<void(int)> call, int m = {}) : call_(std::move(call)), text_{'{'} {}\n"
    "  ~Full() override = default;\n"
    "  Full& operator=(const Full&) = delete;\n"
    '  bool operator()(int a) const { return text_ == "};" && a == 0; }\n'
    "%s"
    "\n private:\n"
    "  const std::function<void(int)> call_;\n"
    "  std::map<int, std::pair<int, int>> places_ ABSL_GUARDED_BY(mutex_);\n"
    '  std::string text_ = "int a; int b;";\n'
    "  char end_ = ';', begin_{'}'};\n"
    "  uint32_t bit_ : 1;\n"
    "  void (*function)(int, int) = nullptr;\n"  # counted as a method
    "  mutable absl::Mutex mutex_;\n"
    "  int array_[2] = {1, 2};\n"
    "  struct {\n    int x, y;\n  } point_;\n"
    "  Inner inner_{1, {2, 3, 4}};\n"
    "%s"
    "};\n"
)
METHODS = "".join(f"  void F{i}(int a, int b = {{}}) const {{\n    if (a) {{\n    }}\n  }}\n" for i in range(35))
MEMBERS = "".join(f"  int n{i}_ = 0;\n" for i in range(5))

CLEAN = {
    "common/base/ids.h": '#pragma once\n#include <string>\n#include "absl/strings/str_cat.h"\n',
    "common/tensor/buffer.h": '#include "common/base/ids.h"\n#include "cairn/v1/types.pb.h"\n',
    "server/core/partition_core.cc": '#include "server/core/partition_core.h"\n',
    "server/core/partition_core.h": '#include "common/tensor/buffer.h"\n',
    "server/storage/persistence.h": '#include "server/core/partition_core.h"\n#include "common/storage/kv_store.h"\n',
    "server/node/ps_node.cc": (
        '#include <grpcpp/grpcpp.h>\n#include "client/session_client.h"\n#include "server/storage/persistence.h"\n'
    ),
    "worker/core/replica_core.cc": '#include "worker/backend/backend.h"\n#include "worker/core/mode.h"\n',
    "worker/train/trainer.h": '#include "client/job_client.h"\n#include "common/data/dataset.h"\n',
    "worker/main.cc": '#include "worker/node/worker_node.h"\n',
    "client/cli/main.cc": '#include "common/data/glyphs.h"\n#include "client/job_client.h"\n',
    "tests/unit/x_test.cc": '#include "server/node/ps_node.h"\n#include "worker/main.h"\n',
    "proto/cairn/v1/a.proto": (
        "enum Kind {\n  KIND_UNSPECIFIED = 0; // enum X { A = 1; }\n  ONE = 1;\n}\nenum F { AUTO = 0; }\n"
    ),
    "tests/unit/y_test.cc": 'f(R"(\n' + 121 * "a" + '\n)");\n' + 396 * "\n",
    "server/full.h": FULL % (METHODS, MEMBERS),
    "common/tensor/frame.h": "struct Frame {\n" + "".join(f"  int a{i};\n" for i in range(30)) + "};\n",
    "deploy/a.sh": "cp x /usr/local/bin; ls /var/lib/cairn /tmp/x $root/work/x ../work/x\n",
}

# Planted file, its text, the expected message.
VIOLATIONS = [
    ("common/base/a.h", '#include "common/tensor/buffer.h"', "common/base may use only nothing of ours"),
    ("common/model/a.cc", '#include "server/core/partition_core.h"', "common/model may use only"),
    ("common/tensor/a.cc", "#include <grpcpp/grpcpp.h>", "common/tensor may use only"),
    ("common/storage/a.cc", '#include "cairn/v1/cluster.grpc.pb.h"', "common/storage may use only"),
    ("server/node/ps_node.cc", '#include "worker/core/replica_core.h"', "server/node may use only"),
    ("server/storage/a.cc", '#include "server/node/ps_node.h"', "server/storage may use only"),
    ("server/core/a.cc", '#include "common/storage/kv_store.h"', "server/core may use only"),
    ("coordinator/node/a.cc", '#include "server/node/ps_node.h"', "coordinator/node may use only"),
    ("coordinator/core/a.cc", '#include "coordinator/store/state_store.h"', "coordinator/core may use only"),
    ("coordinator/store/a.cc", '#include "coordinator/node/cluster_driver.h"', "coordinator/store may use only"),
    ("worker/a.cc", '#include "coordinator/core/cluster_core.h"', "worker may use only"),
    ("common/data/a.cc", '#include "worker/backend/backend.h"', "common/data may use only"),
    ("worker/checkpoint/a.cc", '#include "worker/train/trainer.h"', "worker/checkpoint may use only"),
    ("worker/train/a.cc", '#include "worker/node/worker_node.h"', "worker/train may use only"),
    ("client/a.cc", '#include "client/cli/progress.h"', "client may use only"),
    ("client/cli/a.cc", '#include "worker/train/trainer.h"', "client/cli may use only"),
    ("worker/core/replica_core.cc", "  #  include <grpcpp/server.h>", "worker/core may use only"),
    ("worker/core/replica_core.cc", '#include "worker/backend/loss.h"', "worker/core may use only"),
    ("server/a.cc", '#include "../common/base/ids.h"', "from the root of the tree"),
    ("extra/a.cc", "", "stands in no folder of the layout"),
    ("common/data/a.cc", "constexpr int kThingsMax = 3;", "defines kThingsMax"),
    ("worker/core/a.h", "  static constexpr size_t kThingsMax = 3;", "defines kThingsMax"),
    ("proto/cairn/v1/a.proto", "enum Kind { FIRST = 0; }", "enum Kind begins with FIRST = 0"),
    ("proto/cairn/v1/a.proto", "enum Kind {\n  KIND_UNSPECIFIED = 1;\n}", "KIND_UNSPECIFIED = 1"),
    ("deploy/a.sh", "data=/ho" + "me/ann/data", "is a path of one machine"),
    ("server/a.cc", "int a;  // " + 110 * "a", "121 columns, at most 120"),
    ("server/a.cc", 'f(R"(\n)");\n' + 121 * "a", "121 columns"),
    ("server/a.cc", 'f("ERROR", "' + 120 * "a" + '");', "columns, at most 120"),
    ("server/a.cc", 401 * "\n", "401 lines, at most 400"),
    ("proto/cairn/v1/a.proto", "// " + 118 * "a", "121 columns, at most 120"),
    ("tests/a.py", "# " + 119 * "a", "121 columns, at most 120"),
    ("tests/a.py", '# R"(\n' + 121 * "a", "121 columns"),  # this language has no raw strings
    ("tests/a.py", 401 * "\n", "401 lines, at most 400"),
    ("deploy/a.sh", "# " + 119 * "a", "121 columns, at most 120"),
    ("deploy/a.sh", 401 * "\n", "401 lines, at most 400"),
    ("coordinator/a.cc", "job.status.set_state(v1::FAILED);", "sets a job's state"),
    ("server/full.h", FULL % (METHODS, MEMBERS + "  bool more_;\n"), "Full has 16 members, at most 15"),
    ("server/full.h", FULL % (METHODS, MEMBERS.replace("n4_", "n4_, n5_")), "Full has 16 members"),
    ("server/full.h", FULL % (METHODS, "  std::vector<Kind> v_ ABSL_GUARDED_BY(mutex_);\n" + MEMBERS), "16 members"),
    ("server/full.h", FULL % (METHODS + "  void More();\n", MEMBERS), "Full has 41 methods, at most 40"),
    ("server/full.h", FULL % (METHODS + "  int more() const { return n_; }\n", MEMBERS), "41 methods"),
    ("server/full.h", FULL % (METHODS + "  template <typename U>\n  U As(U&&);\n", MEMBERS), "41 methods"),
    ("server/a.cc", "class A::Impl {\n" + "".join(f"  T a{i}_;\n" for i in range(16)) + "};", "A::Impl has 16 members"),
    ("tests/unit/x_test.cc", 'Open("/wo' + 'rk/shared");', "is a path of one machine"),
]


def write(root, path, text):
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w") as f:
        f.write(text)


def problems_with(planted):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **planted}.items():
            write(root, path, text)
        write(root, "build/release/a.h", '#include "/anything"')  # not checked
        return check_tree(root)


def main():
    clean = problems_with({})
    assert not clean, clean
    for path, text, says in VIOLATIONS:
        found = problems_with({path: text})
        assert len(found) == 1 and found[0].startswith(path) and says in found[0], (path, text, says, found)
    print(f"{len(VIOLATIONS)} planted violations found, none in the clean tree")


if __name__ == "__main__":
    main()
