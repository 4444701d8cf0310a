#include "worker/backend/onednn/scale_and_shift.h"

namespace cairn::onednn {

using dnnl::normalization_flags;

ScaleAndShift::ScaleAndShift(const PlanBuilder& b, const Node& node, int64_t channels)
    : gamma_(b.FindVariable(node, "gamma")),
      beta_(b.FindVariable(node, "beta")),
      channels_(MakeDesc({channels}, Tag::x)) {}

normalization_flags ScaleAndShift::flags() const {
  auto flags = normalization_flags::none;
  if (gamma_ != nullptr) flags |= normalization_flags::use_scale;
  if (beta_ != nullptr) flags |= normalization_flags::use_shift;
  return flags;
}

dnnl::prop_kind ScaleAndShift::backward_kind() const {
  return gamma_ != nullptr || beta_ != nullptr ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
}

void ScaleAndShift::AddForward(PlanBuilder& b, Arguments* arguments) const {
  if (gamma_ != nullptr) arguments->emplace_back(DNNL_ARG_SCALE, b.ValueOf(*gamma_, channels_));
  if (beta_ != nullptr) arguments->emplace_back(DNNL_ARG_SHIFT, b.ValueOf(*beta_, channels_));
}

void ScaleAndShift::AddBackward(PlanBuilder& b, Arguments* arguments) const {
  const auto add = [&](const Variable* variable, int value, int gradient) {
    if (variable == nullptr) return;
    arguments->emplace_back(value, b.ValueOf(*variable, channels_));
    arguments->emplace_back(gradient,
                            b.Trains(*variable) ? b.GradientOf(*variable, channels_) : b.New(channels_)->memory);
  };
  add(gamma_, DNNL_ARG_SCALE, DNNL_ARG_DIFF_SCALE);
  add(beta_, DNNL_ARG_SHIFT, DNNL_ARG_DIFF_SHIFT);
}

}  // namespace cairn::onednn
