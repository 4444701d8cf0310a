// A transcript's copies of one partition: cores of a ps (server/core/partition_core.h), joined by hand, and the
// commands of the script. README.md lists them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/transcripts/transcript.h"
#include "tests/unit/server/replication_test_util.h"

namespace cairn {

class PartitionScript {
 public:
  // What the copies were told and what they did, a line each. Errors: INVALID_ARGUMENT, NOT_FOUND.
  absl::StatusOr<std::string> Run(const Command& command);

 private:
  struct Ps {
    std::unique_ptr<Copy> copy;
    uint64_t streams = 0;  // opened to it
  };

  absl::Status StartCopy(const Command& command);
  absl::Status Push(const Command& command, Copy& copy);
  absl::Status Pull(const Command& command, Copy& copy);
  absl::Status Assign(const Command& command, Copy& copy);
  absl::Status RunLink(const Command& command, const std::string& from);
  absl::StatusOr<Copy*> CopyNamed(const std::string& name);
  AssignEvent AssignmentOf(uint64_t generation, const std::vector<std::string>& words);
  // Steps the copy, writes down what it does, and carries its sends to the other copies, and their answers back.
  void Step(const std::string& name, PartitionEvent event, const std::string& what);
  void Carry(const std::string& from, const PartitionEffects& effects);
  void Show(const std::string& name);

  std::map<std::string, Ps> ps_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  uint32_t replicas_ = 1;
  std::string out_;
};

}  // namespace cairn
