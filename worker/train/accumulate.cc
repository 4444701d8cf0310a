#include "worker/train/accumulate.h"

#include <utility>

#include "common/model/gradient_layout.h"
#include "common/tensor/summation_tree.h"

namespace cairn {
namespace {

void Add(const BatchSums& piece, BatchSums& total) {
  total.examples += piece.examples;
  total.loss += piece.loss;
  for (size_t m = 0; m < total.metrics.size(); ++m) total.metrics[m] += piece.metrics[m];
}

// A short step leaves pieces empty, the last ones.
int32_t LastPiece(const StepPlan& plan, const StepInfo& info) {
  const ReplicaId replica(static_cast<int32_t>(info.replica));
  int32_t last = plan.pieces - 1;
  while (last > 0 && plan.Piece(static_cast<int64_t>(info.step), replica, last).size() == 0) --last;
  return last;
}

// train: a piece, whose info says which of the step's it is.
absl::StatusOr<BatchSums> EachPiece(
    const StepPieces& step,
    const std::function<absl::StatusOr<BatchSums>(const Batch& examples, const StepInfo& info)>& train) {
  const auto pieces = static_cast<uint64_t>(step.plan.pieces);
  const int32_t last = LastPiece(step.plan, step.info);
  BatchSums total;
  for (int32_t piece = 0; piece <= last; ++piece) {
    CAIRN_ASSIGN_OR_RETURN(const Batch examples, step.batch(piece));
    StepInfo piece_info = step.info;
    piece_info.step = step.info.step * pieces + static_cast<uint64_t>(piece);
    piece_info.first_piece = piece == 0;
    piece_info.last_piece = piece == last;
    CAIRN_ASSIGN_OR_RETURN(BatchSums sums, train(examples, piece_info));
    if (piece == 0) {
      total = std::move(sums);
    } else {
      Add(sums, total);
    }
  }
  return total;
}

}  // namespace

StepInfo StepInfoOf(const v1::JobSpec& spec, int64_t step, ReplicaId replica, float loss_scale) {
  StepInfo info;
  info.seed = spec.seed();
  info.step = static_cast<uint64_t>(step);
  info.replica = static_cast<uint32_t>(replica.value);
  const v1::DataType values = ValuesTypeOf(spec);
  // BFLOAT16 has all numbers of INT8: 7 bits of magnitude, in steps of at least 2^-126.
  info.values = IsBlockInt(values) ? v1::BFLOAT16 : values;
  if (loss_scale > 0) info.loss_scale = loss_scale;
  return info;
}

absl::StatusOr<BatchSums> TrainPieces(Program& program, const StepPieces& step, absl::Span<const float> values,
                                      absl::Span<float> gradient, const GradientReady& ready) {
  Buffer own = LastPiece(step.plan, step.info) > 0 ? Buffer::Allocate(gradient.size() * sizeof(float)) : Buffer();
  return EachPiece(step, [&](const Batch& examples, const StepInfo& piece) {
    const auto add_and_tell = [&](int64_t begin, int64_t end) {
      if (!piece.first_piece) {
        const size_t first = static_cast<size_t>(begin), numbers = static_cast<size_t>(end - begin);
        SumInto(gradient.subspan(first, numbers), own.floats().subspan(first, numbers));
      }
      if (piece.last_piece) ready(begin, end);
    };
    return program.TrainStep(examples, piece, values, piece.first_piece ? gradient : own.mutable_floats(),
                             add_and_tell);
  });
}

absl::StatusOr<BatchSums> TrainPiecesJoined(Program& program, const StepPieces& step, absl::Span<const float> values,
                                            const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                            const GradientReady& ready) {
  return EachPiece(step, [&](const Batch& examples, const StepInfo& piece) {
    return program.TrainJoined(examples, piece, values, join, leaf, piece.last_piece ? ready : GradientReady());
  });
}

}  // namespace cairn
