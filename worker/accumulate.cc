#include "worker/accumulate.h"

#include <utility>

#include "common/tensor/summation_tree.h"

namespace cairn {
namespace {

void Add(const BatchSums& piece, BatchSums& total) {
  total.examples += piece.examples;
  total.loss += piece.loss;
  for (size_t m = 0; m < total.metrics.size(); ++m) total.metrics[m] += piece.metrics[m];
}

}  // namespace

absl::StatusOr<BatchSums> TrainPieces(Program& program, const StepPlan& plan,
                                      const std::function<absl::StatusOr<Batch>(int32_t piece)>& batch, const StepInfo& info,
                                      absl::Span<const float> values, absl::Span<float> gradient, const GradientReady& ready) {
  const ReplicaId replica(static_cast<int32_t>(info.replica));
  const auto step = static_cast<int64_t>(info.step);
  int32_t last = plan.pieces - 1;  // a short step leaves pieces empty, the last ones
  while (last > 0 && plan.Piece(step, replica, last).size() == 0) --last;
  Buffer own = last > 0 ? Buffer::Allocate(gradient.size() * sizeof(float)) : Buffer();
  BatchSums total;
  for (int32_t piece = 0; piece <= last; ++piece) {
    CAIRN_ASSIGN_OR_RETURN(const Batch examples, batch(piece));
    StepInfo piece_info = info;
    piece_info.step = info.step * static_cast<uint64_t>(plan.pieces) + static_cast<uint64_t>(piece);
    const auto add_and_tell = [&](int64_t begin, int64_t end) {
      if (piece > 0) {
        const auto at = static_cast<size_t>(begin), n = static_cast<size_t>(end - begin);
        SumInto(gradient.subspan(at, n), own.floats().subspan(at, n));
      }
      if (piece == last) ready(begin, end);
    };
    CAIRN_ASSIGN_OR_RETURN(BatchSums sums, program.TrainStep(examples, piece_info, values,
                                                             piece == 0 ? gradient : own.mutable_floats(), add_and_tell));
    if (piece == 0) {
      total = std::move(sums);
    } else {
      Add(sums, total);
    }
  }
  return total;
}

}  // namespace cairn
