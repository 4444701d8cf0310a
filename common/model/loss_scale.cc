#include "common/model/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/given.h"
#include "common/model/limits.h"

namespace cairn {

std::optional<LossScaleRule> LossScaleRuleOf(const v1::JobSpec& spec) {
  if (spec.compute_dtype() != v1::FLOAT16) return std::nullopt;
  LossScaleRule rule;
  if (IsLossScale(spec.loss_scaling().initial_scale())) rule.initial = spec.loss_scaling().initial_scale();
  if (spec.loss_scaling().dynamic_growth_steps() > 0) {
    rule.growth_steps = static_cast<uint32_t>(spec.loss_scaling().dynamic_growth_steps());
  }
  return rule;
}

absl::Status ResolveLossScaling(v1::JobSpec* spec) {
  if (spec->compute_dtype() != v1::FLOAT16) {
    if (!spec->has_loss_scaling()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("loss_scaling: gradients of compute_dtype ",
                                                   v1::DataType_Name(spec->compute_dtype()),
                                                   " need no scale; leave it out, or use compute_dtype FLOAT16"));
  }
  if (spec->backup_replicas() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("backup_replicas: ", spec->backup_replicas(),
                     " with compute_dtype FLOAT16 is not supported: whether a step is ",
                     "left out must not depend on which gradients came first; use 0, BFLOAT16 or FLOAT32"));
  }
  v1::LossScaling& scaling = *spec->mutable_loss_scaling();
  if (!scaling.has_initial_scale()) scaling.set_initial_scale(LossScaleRule().initial);
  int exponent = 0;
  if (!IsLossScale(scaling.initial_scale()) || std::frexp(scaling.initial_scale(), &exponent) != 0.5f) {
    return absl::InvalidArgumentError(absl::StrCat("loss_scaling.initial_scale: ", scaling.initial_scale(),
                                                   " is not a power of two from 1 to ",
                                                   static_cast<int64_t>(kLossScaleMax), "; use one such as 32768"));
  }
  const std::string otherwise = absl::StrCat(LossScaleRule().growth_steps);
  CAIRN_RETURN_IF_ERROR(AtLeastOne("loss_scaling.dynamic_growth_steps", scaling.has_dynamic_growth_steps(),
                                   scaling.dynamic_growth_steps(), otherwise));
  if (!scaling.has_dynamic_growth_steps())
    scaling.set_dynamic_growth_steps(static_cast<int32_t>(LossScaleRule().growth_steps));
  return absl::OkStatus();
}

LossScale LossScale::From(const LossScaleRule& rule, const v1::LossScaleState& state) {
  if (!IsLossScale(state.scale())) return Initial(rule);
  return {state.scale(), state.finite_steps(), state.skipped()};
}

v1::LossScaleState LossScale::ToProto() const {
  v1::LossScaleState state;
  state.set_scale(scale);
  state.set_finite_steps(finite_steps);
  state.set_skipped(skipped);
  return state;
}

void LossScale::Update(const LossScaleRule& rule, float used, bool finite) {
  if (!finite) {
    ++skipped;
    const float halved = std::max(used / 2, 1.0f);
    if (halved >= scale && scale > 1) return;  // it has been halved meanwhile
    scale = std::min(scale, halved);
    finite_steps = 0;
  } else if (used == scale && ++finite_steps >= rule.growth_steps) {
    scale = std::min(scale * 2, kLossScaleMax);
    finite_steps = 0;
  }
}

std::vector<ClipScope> StepScopesOf(const Graph& graph, const v1::JobSpec& spec, int64_t begin, int64_t end) {
  std::vector<ClipScope> scopes = ClipScopesOf(graph, spec.optimizer(), begin, end);
  if (LossScaleRuleOf(spec)) {
    ClipScope& all = scopes.emplace_back();
    all.id = kFiniteScope;
    all.numbers = static_cast<uint64_t>(end - begin);
    all.total = static_cast<uint64_t>(graph.space_size());
    // Moving averages are not scaled: another scale would not make them finite. All partitions take part, whatever they
    // contain.
    int64_t from = 0;
    for (const Variable& v : graph.variables()) {
      if (v.kind != VariableKind::kMovingAverage) continue;
      const int64_t first = std::clamp<int64_t>(v.offset - begin, from, end - begin);
      if (from < first) all.ranges.emplace_back(from, first);
      from = std::clamp<int64_t>(v.offset + v.size - begin, from, end - begin);
    }
    if (from < end - begin) all.ranges.emplace_back(from, end - begin);
  }
  return scopes;
}

}  // namespace cairn
