#include "tests/sim/job.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "common/model/clip_norm.h"
#include "common/model/fault_check.h"
#include "common/model/gradient_layout.h"
#include "common/model/initializer.h"
#include "common/model/strategy_check.h"
#include "common/tensor/dtype.h"
#include "tests/sim/callbacks.h"
#include "tests/sim/checkpoints.h"

namespace cairn::sim {
namespace {

constexpr int64_t kFewPartitionsBytes = 512;  // no model here has more than three of them

v1::Layer* AddDense(v1::Model* model, int units, bool zeros) {
  v1::Layer* layer = model->add_layers();
  layer->mutable_dense()->set_units(units);
  if (zeros) layer->mutable_dense()->mutable_kernel_initializer()->set_kind(v1::Initializer::ZEROS);
  return layer;
}

bool HasLossScale(const v1::JobSpec& spec) { return spec.compute_dtype() == v1::FLOAT16; }

// For an asynchronous job.
bool Overflows(const v1::JobSpec& spec, int64_t step, int32_t unit) {
  return HasLossScale(spec) && (step * 31 + unit * 17) % 7 == 0;
}

// The sum over replicas [first, first + width) of which those below R exist; width is a power of two. Every node is
// rounded.
Gradient NaiveTree(const std::vector<Gradient>& leaves, size_t first, size_t width, const GradientRounding& rounding) {
  if (first >= leaves.size()) return std::nullopt;
  const TreeNode node = {static_cast<uint32_t>(first), static_cast<uint32_t>(std::min(width, leaves.size() - first))};
  if (width == 1) {
    Gradient leaf = leaves[first];
    if (leaf) RoundGradient(rounding, node, absl::MakeSpan(*leaf));
    return leaf;
  }
  Gradient left = NaiveTree(leaves, first, width / 2, rounding);
  Gradient right = NaiveTree(leaves, first + width / 2, width / 2, rounding);
  if (!left) return right;
  if (!right) return left;
  for (size_t i = 0; i < left->size(); ++i) (*left)[i] = (*left)[i] + (*right)[i];
  RoundGradient(rounding, node, absl::MakeSpan(*left));
  return left;
}

}  // namespace

v1::JobSpec RandomJob(Rng& rng, int ps) {
  v1::JobSpec spec;
  spec.set_name("sim");
  switch (rng.Between(0, 5)) {
    case 0: spec.set_strategy(v1::PARAMETER_SERVER); break;
    case 1:
      spec.set_strategy(v1::PARAMETER_SERVER);
      spec.set_staleness_bound(static_cast<int32_t>(rng.Between(1, 3)));
      break;
    case 2:
      spec.set_strategy(v1::PARAMETER_SERVER);
      spec.set_staleness_bound(0);
      break;
    case 3: spec.set_strategy(v1::MIRRORED); break;
    default: spec.set_strategy(v1::MULTI_WORKER_MIRRORED);
  }
  const bool synchronous = IsSynchronous(spec);
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(kInputs);
  for (int64_t i = rng.Between(0, 2); i > 0; --i) AddDense(spec.mutable_model(), rng.Between(1, 6), !synchronous);
  AddDense(spec.mutable_model(), 3, !synchronous);
  spec.mutable_data()->set_path("/data");
  spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  spec.mutable_loss()->set_from_logits(true);
  v1::Sgd& sgd = *spec.mutable_optimizer()->mutable_sgd();
  if (synchronous && rng.Chance(0.5)) sgd.set_momentum(0.9f);  // a slot, which must move with the values
  spec.mutable_optimizer()->set_learning_rate(synchronous ? 0.1f : 1.0f);
  spec.set_replicas(static_cast<int32_t>(rng.Between(1, 6)));
  spec.set_batch_size(spec.replicas() + static_cast<int32_t>(rng.Between(0, 9)));
  spec.set_epochs(static_cast<int32_t>(rng.Between(1, 3)));
  spec.set_partition_bytes(64 * rng.Between(1, 3));
  spec.set_seed(rng.Next());
  if (spec.strategy() == v1::MULTI_WORKER_MIRRORED && spec.replicas() > 1 && rng.Chance(0.2)) {
    spec.set_backup_replicas(static_cast<int32_t>(rng.Between(1, std::min(2, spec.replicas() - 1))));
  }
  if (synchronous && spec.seed() % 8 < 2) {
    if (spec.seed() % 8 == 0) spec.mutable_optimizer()->set_global_clipnorm(0.5f);
    if (spec.seed() % 8 == 1) spec.mutable_optimizer()->set_clipnorm(0.25f);
    if (spec.backup_replicas() > 0) {  // subsets.h
      spec.set_replicas(std::min(3, spec.replicas()));
      spec.set_backup_replicas(1);
      spec.set_partition_bytes(kFewPartitionsBytes);
    }
  }
  if (spec.strategy() == v1::MULTI_WORKER_MIRRORED && spec.backup_replicas() == 0 && spec.seed() % 16 < 7) {
    spec.set_strategy(v1::CENTRAL_STORAGE);
  }
  if (spec.backup_replicas() == 0 && spec.seed() % 5 == 0) {
    spec.set_compute_dtype(v1::FLOAT16);
    spec.mutable_loss_scaling()->set_initial_scale(spec.seed() % 3 == 0 ? 64 : 8);
    spec.mutable_loss_scaling()->set_dynamic_growth_steps(2);
  }
  if (synchronous && spec.backup_replicas() == 0) {
    const v1::DataType wires[] = {v1::BFLOAT16, v1::FLOAT16, v1::INT8, v1::INT4, v1::INT2};
    if (spec.seed() % 11 < 5) spec.set_wire_dtype(wires[spec.seed() % 11]);
  }
  if (spec.backup_replicas() == 0 && spec.seed() % 7 == 0) spec.set_values_wire_dtype(v1::INT8);
  if (!synchronous && spec.seed() % 2 == 0) {
    for (int32_t group = 2; group <= spec.replicas() && spec.local_sync() == 0; ++group) {
      if (spec.replicas() % group == 0) spec.set_local_sync(group);
    }
  }
  if (rng.Chance(0.4)) {
    v1::Checkpoints& rule = *spec.mutable_checkpoints();
    rule.set_dir(kCheckpointDir);
    rule.set_keep_max(static_cast<int32_t>(rng.Between(1, 3)));
    switch (rng.Between(0, 3)) {
      case 0: rule.set_every_epochs(1); break;
      case 1: rule.set_every_minutes(0.01); break;
      default: rule.set_every_steps(rng.Between(1, 6));
    }
    if (rng.Chance(0.2)) rule.set_save_best("loss");
  }
  RandomDurability(rng, ps, spec);
  RandomCallbacks(spec);
  return spec;
}

void RandomDurability(Rng& rng, int ps, v1::JobSpec& spec) {
  if (ps == 1 || rng.Chance(0.35)) {
    spec.set_durability(rng.Chance(0.7) ? v1::LOGGED : v1::SNAPSHOT);
    spec.set_backups(0);
  } else {
    spec.set_durability(rng.Chance(0.5) ? v1::REPLICATED : v1::LOGGED_AND_REPLICATED);
    spec.set_backups(static_cast<int32_t>(rng.Between(1, ps > 2 && rng.Chance(0.3) ? 2 : 1)));
  }
  spec.set_fsync(rng.Chance(0.3));
}

v1::DataInfo DataOf(int64_t train_examples) {
  v1::DataInfo info;
  info.set_path("/data");
  info.set_format(v1::Data::CSV);
  info.set_train_examples(train_examples);
  info.set_validation_examples(kValidationExamples);
  info.add_example_shape(kInputs);
  info.set_classes(3);
  return info;
}

void FillGradient(const v1::JobSpec& spec, int64_t step, ReplicaId replica, int64_t examples,
                  absl::Span<const float> values, absl::Span<float> gradient, int64_t begin, float loss_scale) {
  if (!IsSynchronous(spec)) {
    const int32_t unit = replica.value / LocalSyncOf(spec);
    std::fill(gradient.begin(), gradient.end(), -static_cast<float>(examples) * static_cast<float>(unit + 1));
    if (Overflows(spec, step, unit)) gradient[static_cast<size_t>(step) % gradient.size()] = INFINITY;
    return;
  }
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(step), static_cast<uint32_t>(replica.value)};
  for (size_t i = 0; i < gradient.size(); ++i) {
    const PhiloxBlock noise = Philox(key, {static_cast<uint32_t>(begin + static_cast<int64_t>(i)), 0, 0, 0});
    gradient[i] = static_cast<float>(examples) * (values[i] * 0.3f + ToUniform(noise[0]) - 0.5f);
    if (loss_scale >= 16 && noise[1] < UINT32_MAX / 200) gradient[i] = noise[2] % 2 == 0 ? INFINITY : NAN;
  }
}

Gradient NaiveSum(const std::vector<Gradient>& leaves, const GradientRounding& rounding) {
  size_t width = 1;
  while (width < leaves.size()) width *= 2;
  return NaiveTree(leaves, 0, width, rounding);
}

void NaiveUpdate(const v1::JobSpec& spec, const std::vector<float>& sum, int64_t examples, std::vector<float>& values,
                 std::vector<float>& moments) {
  const float momentum = spec.optimizer().sgd().momentum(), rate = spec.optimizer().learning_rate();
  for (size_t i = 0; i < values.size(); ++i) {
    const float step_size = rate * (sum[i] / static_cast<float>(examples));
    if (momentum > 0) {
      moments[i] = momentum * moments[i] - step_size;
      values[i] = values[i] + moments[i];
    } else {
      values[i] = values[i] - step_size;
    }
  }
}

Reference::Reference(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan, const Reference* before,
                     int64_t steps_before) {
  std::vector<float> values(graph.space_size());
  InitializeRange(graph, spec.seed(), 0, absl::MakeSpan(values));
  is_variable_.assign(values.size(), false);
  for (const Variable& v : graph.variables()) std::fill_n(is_variable_.begin() + v.offset, v.size, true);

  if (!IsSynchronous(spec)) {
    const int32_t group = LocalSyncOf(spec);
    for (int32_t first = 0; first < spec.replicas(); first += group) {
      std::vector<float>& added = counted_.emplace_back(1, 0.0f);
      for (int64_t step = 0; step < plan.total_steps; ++step) {
        bool any = false;
        for (int32_t r = first; r < first + group; ++r) any = any || plan.Places(step, ReplicaId(r)).size() > 0;
        any = any && !Overflows(spec, step, first / group);
        added.push_back(added.back() + (any ? static_cast<float>(first / group + 1) : 0.0f));
      }
    }
    return;
  }
  const GradientLayout layout = GradientLayoutOf(graph, spec);
  std::vector<float> moments(values.size(), 0.0f);
  trajectory_.push_back(values);
  moments_.push_back(moments);
  Scale scale{spec.loss_scaling().initial_scale()};
  scales_.push_back(scale);
  for (int64_t step = 0; step < plan.total_steps; ++step) {
    if (before != nullptr && step < steps_before) {
      values = before->AfterSteps(static_cast<uint64_t>(step) + 1);
      moments = before->MomentsAfter(static_cast<uint64_t>(step) + 1);
      scale = before->scales_[static_cast<size_t>(step) + 1];
    } else {
      std::vector<Gradient> leaves(spec.replicas());
      std::vector<float> seen = values;
      RoundNearest(ValuesRounding(ValuesTypeOf(spec), 0, layout), absl::MakeSpan(seen));
      int64_t total = 0;
      for (int32_t r = 0; r < spec.replicas(); ++r) {
        const int64_t examples = plan.Places(step, ReplicaId(r)).size();
        if (examples == 0) continue;
        total += examples;
        leaves[r].emplace(values.size());
        FillGradient(spec, step, ReplicaId(r), examples, seen, absl::MakeSpan(*leaves[r]), 0, scale.scale);
      }
      Gradient sum = NaiveSum(leaves, {GradientTypeOf(spec), spec.seed(), static_cast<uint64_t>(step) + 1, 0, &layout});
      if (sum && HasLossScale(spec)) {
        const bool finite = std::all_of(sum->begin(), sum->end(), [](float g) { return std::isfinite(g); });
        if (!finite) {
          sum.reset();
          scale = {std::max(scale.scale / 2, 1.0f)};
        } else if (++scale.finite_steps == spec.loss_scaling().dynamic_growth_steps()) {
          scale = {std::min(scale.scale * 2, 16777216.0f)};
        }
      }
      if (sum) {
        // In one place; the partitions do it in two phases.
        ClipByNorm(ClipScopesOf(graph, spec.optimizer(), 0, graph.space_size()), ClipNormOf(spec.optimizer()),
                   static_cast<uint64_t>(total), absl::MakeSpan(*sum));
        NaiveUpdate(spec, *sum, total, values, moments);
        // Padding stays 0 at the ps. It counts where gradients are rounded in blocks.
        for (size_t i = 0; i < values.size(); ++i) values[i] = is_variable_[i] ? values[i] : 0;
      }
    }
    trajectory_.push_back(values);
    moments_.push_back(moments);
    scales_.push_back(scale);
  }
}

float Reference::Sum(absl::Span<const uint64_t> sequences) const {
  float sum = 0;
  for (size_t r = 0; r < sequences.size(); ++r)
    sum += counted_[r][std::min<size_t>(sequences[r], counted_[r].size() - 1)];
  return sum;
}

}  // namespace cairn::sim
