#include "replay/not_finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/data/batch_decoder.h"
#include "common/tensor/finite.h"
#include "replay/layer_outputs.h"
#include "worker/train/accumulate.h"

namespace cairn {
namespace {

// A batch of one of the examples.
Batch TakeExample(const Batch& batch, int64_t example) {
  Batch one;
  one.examples = 1;
  one.label_size = batch.label_size;
  one.element = batch.element;
  const size_t input = batch.inputs.size() / static_cast<size_t>(batch.examples);
  one.inputs = Buffer::CopyOf(batch.inputs.data() + static_cast<size_t>(example) * input, input);
  const absl::Span<const float> labels = batch.labels.floats();
  const auto label = static_cast<size_t>(batch.label_size), weights = label * static_cast<size_t>(batch.examples);
  const bool weighted = labels.size() > weights;
  one.labels = Buffer::Allocate((label + (weighted ? 1 : 0)) * sizeof(float));
  const absl::Span<float> to = one.labels.mutable_floats();
  std::copy_n(labels.begin() + example * batch.label_size, label, to.begin());
  if (weighted) to[label] = labels[weights + static_cast<size_t>(example)];
  return one;
}

// Runs `task` on a slot and waits for it.
void RunOnSlot(ComputePool& pool, const std::function<void(ProgramCache&)>& task) {
  absl::Notification done;
  pool.Submit(ComputePool::Priority::kTraining, [&](ProgramCache& programs) {
    task(programs);
    done.Notify();
  });
  done.WaitForNotification();
}

absl::Span<const float> NumbersOf(const Variable& variable, absl::Span<const float> space) {
  return space.subspan(static_cast<size_t>(variable.offset), static_cast<size_t>(variable.size));
}

// From the last one on, as the backward pass comes to them; or from the first one on.
std::string VariableOf(const Graph& graph, absl::Span<const float> space, bool backward) {
  std::string name;
  for (const Variable& variable : graph.variables()) {
    if (AllFinite(NumbersOf(variable, space))) continue;
    name = variable.name;
    if (!backward) break;
  }
  return name;
}

}  // namespace

bool NotFiniteFinder::IsFinite(double loss, absl::Span<const float> gradient, float loss_scale) const {
  return std::isfinite(loss) && (loss_scale > 0 || AllFinite(gradient));
}

absl::StatusOr<std::optional<NotFinite>> NotFiniteFinder::LookAt(const ReplayedReplica& replica) {
  if (IsFinite(replica.sums.loss, replica.gradient.floats(), replica.loss_scale)) return std::nullopt;
  absl::StatusOr<std::optional<NotFinite>> found;
  RunOnSlot(pool_, [&](ProgramCache& programs) { found = LookAtExamples(replica, programs); });
  if (!found.ok() || *found) return found;
  // Only all examples together have it.
  CAIRN_ASSIGN_OR_RETURN(const Batch all, batches_.source->Get(replica.step, replica.replica));
  RunOnSlot(pool_,
            [&](ProgramCache&) { found = Describe(replica, all, replica.sums.loss, replica.gradient.floats()); });
  return found;
}

std::optional<NotFinite> NotFiniteFinder::LookAt(const ReplayedStep& step) const {
  if (AllFinite(step.after.floats())) return std::nullopt;
  NotFinite found;
  found.kind = NotFinite::Kind::kVariable;
  found.step = step.step;
  found.name = VariableOf(*batches_.model->graph, step.after.floats(), /*backward=*/false);
  return found;
}

absl::StatusOr<std::optional<NotFinite>> NotFiniteFinder::LookAtExamples(const ReplayedReplica& replica,
                                                                         ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(batches_.model));
  const v1::JobSpec& spec = batches_.model->spec;
  const StepPlan& plan = batches_.plan;
  Buffer gradient = Buffer::Allocate(replica.values.size());
  const ExampleOrder order(spec.seed(), !spec.data().has_shuffle() || spec.data().shuffle(), plan, replica.step);
  StepInfo info = StepInfoOf(spec, replica.step, replica.replica, replica.loss_scale);
  for (int32_t piece = 0; piece < plan.pieces; ++piece) {
    CAIRN_ASSIGN_OR_RETURN(const Batch batch, batches_.source->Get(replica.step, replica.replica, piece));
    info.step = static_cast<uint64_t>(replica.step * plan.pieces + piece);
    for (int64_t i = 0; i < batch.examples; ++i) {
      const Batch one = TakeExample(batch, i);
      CAIRN_ASSIGN_OR_RETURN(
          const BatchSums sums,
          program->TrainStep(one, info, replica.values.floats(), gradient.mutable_floats(), [](int64_t, int64_t) {}));
      if (IsFinite(sums.loss, gradient.floats(), replica.loss_scale)) continue;
      NotFinite found = Describe(replica, one, sums.loss, gradient.floats());
      found.example = order(plan.Piece(replica.step, replica.replica, piece).begin + i);
      return found;
    }
  }
  return std::nullopt;
}

// On a slot.
NotFinite NotFiniteFinder::Describe(const ReplayedReplica& replica, const Batch& examples, double loss,
                                    absl::Span<const float> gradient) {
  NotFinite found;
  found.step = replica.step;
  found.replica = replica.replica.value;
  if (examples.element == Element::kFloat && !AllFinite(examples.inputs.floats())) {
    found.kind = NotFinite::Kind::kInput;
  } else if (!AllFinite(examples.labels.floats())) {
    found.kind = NotFinite::Kind::kLabel;
  } else {
    OutputSearch search = FindNotFiniteOutput(pool_.backend(), *batches_.model, examples, replica.values.floats());
    found.not_looked_at = std::move(search.passed_over);
    if (!search.layer.empty()) {
      found.kind = NotFinite::Kind::kOutput;
      found.name = std::move(search.layer);
    } else if (!std::isfinite(loss)) {
      found.kind = NotFinite::Kind::kLoss;
    } else {
      found.kind = NotFinite::Kind::kGradient;
      found.name = VariableOf(*batches_.model->graph, gradient, /*backward=*/true);
    }
  }
  return found;
}

}  // namespace cairn
