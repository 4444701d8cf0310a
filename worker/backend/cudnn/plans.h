// Plans: the plans that a program used last, and the arena that they share.
//
// Used on the program's thread. Invariants:
//   1. A recording points into the arena: when the arena is replaced by a larger one, all recordings are dropped.
//   2. Nothing that the device may still use is released before the device was waited for.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/feed.h"
#include "worker/backend/cudnn/watched.h"

namespace cairn::cudnn {

class Plans {
 public:
  struct Kept {
    Mode mode = Mode::kTrain;
    int64_t label_size = 1;
    bool row_weights = false;
    Element inputs = Element::kFloat;
    std::unique_ptr<Plan> plan;
    Pair constants, refusals;
    bool warm = false;  // it has run: the libraries have loaded their kernels
    // Of a warm plan: by whether the gradient is joined, and by segment.
    std::vector<std::unique_ptr<Recording>> recordings[2];
  };

  // options: Find sets examples, label_size, row_weights, inputs and mode. The graph and the machine outlive this.
  Plans(const Graph& graph, LoweringOptions options, Machine& machine)
      : graph_(graph), options_(std::move(options)), machine_(machine) {}

  // Returns the plan; lowers it if it is not among the last few. Valid until the next Find.
  absl::StatusOr<Kept*> Find(Mode mode, int64_t examples, int64_t label_size, bool row_weights, Element inputs);
  const Block& arena() const { return arena_; }
  // Called when what recordings point to is replaced, while the device uses none of it.
  void DropRecordings();

 private:
  const Graph& graph_;
  const LoweringOptions options_;
  Machine& machine_;
  Block arena_;
  std::list<Kept> plans_;  // the most recently used one first
};

}  // namespace cairn::cudnn
