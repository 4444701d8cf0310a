#include "worker/backend/cudnn/plans.h"

#include <algorithm>
#include <utility>

namespace cairn::cudnn {
namespace {

// Training and evaluation on full batches and on one or two short ones each.
constexpr size_t kPlansKept = 6;

}  // namespace

bool CountsOnHost(const v1::Loss& loss, const std::vector<v1::Metric>& metrics) {
  if (metrics.empty()) return false;
  return loss.kind() > v1::Loss::MEAN_SQUARED_ERROR ||
         std::any_of(metrics.begin(), metrics.end(),
                     [](const v1::Metric& m) { return m.kind() > v1::Metric::ROOT_MEAN_SQUARED_ERROR; });
}

absl::StatusOr<Plans::Kept*> Plans::Find(Mode mode, int64_t examples, int64_t label_size, bool row_weights,
                                         Element inputs) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Kept& kept) {
    return kept.mode == mode && kept.plan->examples() == examples && kept.label_size == label_size &&
           kept.row_weights == row_weights && kept.inputs == inputs;
  });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
    return &plans_.front();
  }
  LoweringOptions options = options_;
  options.examples = examples;
  options.label_size = label_size;
  options.row_weights = row_weights;
  options.mode = mode;
  options.inputs = inputs;
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, LowerGraph(graph_, options, machine_));
  CAIRN_RETURN_IF_ERROR(machine_.WaitForAll(kPatience));  // before a recording or the arena goes
  const int64_t arena = plan->arena_bytes();
  if (arena > arena_.bytes()) {
    DropRecordings();  // they point into the old arena
    arena_ = Block();  // before the larger one, so that both never stand side by side
    absl::StatusOr<Block> larger = machine_.Allocate(arena);
    if (!larger.ok()) {
      plans_.clear();  // none may run without an arena
      return larger.status();
    }
    arena_ = *std::move(larger);
  }
  Kept kept;
  if (const std::vector<float>& numbers = plan->constants(); !numbers.empty()) {
    CAIRN_RETURN_IF_ERROR(kept.constants.Allocate(machine_, static_cast<int64_t>(numbers.size() * sizeof(float))));
    std::copy(numbers.begin(), numbers.end(), kept.constants.pinned.as<float>());
    CAIRN_RETURN_IF_ERROR(
        machine_.CopyIn(kept.constants.device.data(), kept.constants.pinned.data(), kept.constants.pinned.bytes()));
  }
  if (plan->refusal_numbers() > 0) {
    CAIRN_RETURN_IF_ERROR(
        kept.refusals.Allocate(machine_, plan->refusal_numbers() * static_cast<int64_t>(sizeof(double))));
  }
  kept.mode = mode;
  kept.label_size = label_size;
  kept.row_weights = row_weights;
  kept.inputs = inputs;
  kept.plan = std::move(plan);
  plans_.push_front(std::move(kept));
  if (plans_.size() > kPlansKept) plans_.pop_back();
  return &plans_.front();
}

void Plans::DropRecordings() {
  for (Kept& kept : plans_) {
    for (auto& recordings : kept.recordings) recordings.clear();
  }
}

}  // namespace cairn::cudnn
