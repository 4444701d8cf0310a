// Gradient accumulation (JobSpec.accumulate_steps): a replica's examples of one step, computed in pieces one after the
// other.
//
// Of one slot thread. Memory is that of one piece, and one more gradient where there are several. Invariants:
//   1. The gradient is the pieces' gradients added up in their order; one piece: the program's own, bit for bit.
//   2. A number is announced once, when the last piece's gradient is in it.
//   3. What is random differs between pieces: a piece is a step of its own to the program.
#pragma once

#include <functional>
#include <memory>

#include "common/model/step_plan.h"
#include "worker/backend/backend.h"

namespace cairn {

// batch(piece): the examples of plan.Piece(step, replica, piece), asked for in order; not for empty pieces.
using PieceBatch = std::function<absl::StatusOr<Batch>(int32_t piece)>;

// info.step and info.replica say which. The replica has at least one example.
absl::StatusOr<BatchSums> TrainPieces(Program& program, const StepPlan& plan, const PieceBatch& batch,
                                      const StepInfo& info, absl::Span<const float> values, absl::Span<float> gradient,
                                      const GradientReady& ready);

// The same, but the program adds up (Program::TrainJoined), and gives the sum to the join. ready: of the last piece.
absl::StatusOr<BatchSums> TrainPiecesJoined(Program& program, const StepPlan& plan, const PieceBatch& batch,
                                            const StepInfo& info, absl::Span<const float> values,
                                            const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                            const GradientReady& ready);

}  // namespace cairn
