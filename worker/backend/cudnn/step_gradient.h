// StepGradient: the gradient of a program's step. It owns the memory on the device, and copies the gradient to the host
// or provides it to the sum of the worker's replicas (DeviceJoin).
//
// Used on the program's thread. Invariant: the gradients of padding and of frozen variables are never written and stay
// 0.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/feed.h"
#include "worker/backend/cudnn/join.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

class StepGradient {
 public:
  // Both outlive it.
  StepGradient(const Graph& graph, Machine& machine);
  absl::Status Prepare();
  // Called before a step whose gradient goes to a sum of this type. pieces: it is first added to those of other pieces.
  absl::Status PrepareJoin(v1::DataType type, bool pieces);

  float* device() const { return gradient_.device.as<float>(); }
  // Where ranges are copied to on their way to the host.
  float* pinned() const { return gradient_.pinned.as<float>(); }
  int64_t bytes() const;  // on the device

  // Copies the range [begin, end), which must be in pinned(), to `to`, the whole space, and divides it by the loss
  // scale except where it has none.
  void Take(int64_t begin, int64_t end, float loss_scale, absl::Span<float> to) const;

  // What is added to a sum of replicas: this step's gradient times `factor`, or the sum of the pieces.
  DeviceJoin::Source Own(float factor) const;
  DeviceJoin::Source Pieces() const;
  // Adds the range of this step's gradient to the sum of the pieces; first: nothing is in that yet.
  absl::Status AddPiece(const DeviceJoin::Source& own, int64_t begin, int64_t end, bool first) {
    return pieces_.Add(own, begin, end, first);
  }

 private:
  const Graph& graph_;
  Machine& machine_;
  Pair gradient_;
  std::vector<std::pair<int64_t, int64_t>> not_scaled_;  // ranges without the loss scale, in order: what is not trained
  PieceSum pieces_;                                      // only for steps of several pieces
  Block rounded_;                                        // a sum in its type; only for types of 16 bits
};

}  // namespace cairn::cudnn
