// Plans: the lowered plans of a program, the last few that were used, and the arena that they share.
//
// Of the program's thread. Invariants:
//   1. A recording points into the arena as it is: with a larger arena all are forgotten.
//   2. Nothing that the device may still use goes before it is waited for.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "worker/backend/cudnn/builder.h"
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
    bool warm = false;  // has run: libraries have loaded their kernels
    std::vector<std::unique_ptr<Recording>>
        recordings[2];  // by whether the gradient is joined, and segment; of a warm one
  };

  // options: examples, label_size, row_weights, inputs and mode are Find's. The graph and the machine outlive this.
  Plans(const Graph& graph, LoweringOptions options, Machine& machine)
      : graph_(graph), options_(std::move(options)), machine_(machine) {}

  // The plan, lowered if it is not among the last few; it stands until the next Find.
  absl::StatusOr<Kept*> Find(Mode mode, int64_t examples, int64_t label_size, bool row_weights, Element inputs);
  const Block& arena() const { return arena_; }

 private:
  const Graph& graph_;
  const LoweringOptions options_;
  Machine& machine_;
  Block arena_;
  std::list<Kept> plans_;  // the last used first
};

}  // namespace cairn::cudnn
