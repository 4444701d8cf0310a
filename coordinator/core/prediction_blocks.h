// PredictionBlocks: the outputs of a Predict on their way to the caller.
//
// Not thread-safe; part of an Evaluation. Invariants:
//   1. Blocks are delivered in the order of their shards, each once.
//   2. At most one block is in flight to the caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "cairn/v1/job.pb.h"

namespace cairn {

class PredictionBlocks {
 public:
  void Add(uint32_t shard, v1::PredictResponse block) { waiting_[shard] = std::move(block); }
  // The next block, in flight from now on; nullopt: it is not here yet, or the caller has not taken the previous one.
  std::optional<v1::PredictResponse> Next() {
    if (writing_) return std::nullopt;
    auto next = waiting_.extract(delivered_);
    if (next.empty()) return std::nullopt;
    ++delivered_;
    writing_ = true;
    return std::move(next.mapped());
  }
  void Taken() { writing_ = false; }

  bool writing() const { return writing_; }
  uint32_t delivered() const { return delivered_; }  // shards; while writing(), the last of them is in flight

 private:
  std::map<uint32_t, v1::PredictResponse> waiting_;  // by shard
  uint32_t delivered_ = 0;
  bool writing_ = false;
};

}  // namespace cairn
