// Gradient accumulation (JobSpec.accumulate_steps): computes a replica's examples of one step in pieces, one after the
// other.
//
// Called on one slot thread. Needs the memory of one piece, plus one more gradient if there are several. Invariants:
//   1. The gradient is the sum of the pieces' gradients, added in the order of the pieces. With one piece it is the
//      program's own gradient, bit for bit.
//   2. A range of the gradient is announced once, when the last piece has been added to it.
//   3. Random numbers differ between pieces: to the program each piece is a step of its own.
#pragma once

#include <functional>
#include <memory>

#include "common/model/step_plan.h"
#include "worker/backend/backend.h"

namespace cairn {

// What a program is told of a step of the replica. loss_scale: 0 for jobs that have none.
StepInfo StepInfoOf(const v1::JobSpec& spec, int64_t step, ReplicaId replica, float loss_scale = 0);

// Returns the examples of plan.Piece(step, replica, piece). Called in the order of the pieces, and not for empty ones.
using PieceBatch = std::function<absl::StatusOr<Batch>(int32_t piece)>;

// The step info.step of the replica info.replica, which must have at least one example in it.
struct StepPieces {
  const StepPlan& plan;
  const PieceBatch& batch;
  const StepInfo& info;
};
absl::StatusOr<BatchSums> TrainPieces(Program& program, const StepPieces& step, absl::Span<const float> values,
                                      absl::Span<float> gradient, const GradientReady& ready);

// The same, but the program adds up the pieces (Program::TrainJoined) and gives the sum to `join`. `ready` is called
// for the last piece.
absl::StatusOr<BatchSums> TrainPiecesJoined(Program& program, const StepPieces& step, absl::Span<const float> values,
                                            const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                            const GradientReady& ready);

}  // namespace cairn
