// What a simulated node of ScaleCluster has. Data only; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/events.h"

namespace cairn::bench {

// Of a job on a ps.
struct ScaleHosted {
  uint64_t generation = 0;
  std::vector<uint32_t> primaries, backups;                     // partitions
  std::set<std::tuple<uint64_t, uint32_t, std::string>> asked;  // backups to fill: by generation and partition
  bool tells_figures = false;                                   // a timer runs
  int64_t stored_epochs = 0;                                    // FiguresStored, the last
  uint64_t question = 0;

  bool has_first() const { return !primaries.empty() && primaries.front() == 0; }
  void Fill(uint64_t version, google::protobuf::RepeatedPtrField<v1::HeldPartition>* held) const {
    for (const auto* copies : {&primaries, &backups}) {
      for (const uint32_t partition : *copies) {
        v1::HeldPartition& one = *held->Add();
        one.set_partition(partition);
        one.set_version(version);
        one.set_backup(copies == &backups);
      }
    }
  }
};

// Of a job on a worker.
struct ScaleAssigned {
  uint64_t generation = 0, assignment = 0;
  std::vector<int32_t> replicas;
  int64_t reported = -1;  // the last step
};

struct ScaleNode {
  bool ps = false;
  int number = 0;  // among its kind
  std::string name, host;
  uint64_t session = 0, sessions = 0;  // the present one, 0: none; how many there were
  SessionToken token;                  // of the present one
  std::map<uint64_t, ScaleHosted> hosted;
  std::map<uint64_t, ScaleAssigned> assigned;

  v1::Hello Hello() const;  // without what it holds and runs
};

}  // namespace cairn::bench
