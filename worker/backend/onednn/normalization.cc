#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;

// A frozen layer (node.trainable false) uses the moving statistics in training too, and its variables have no
// gradients; one that is computed as in inference (InfersAlways) uses them, and gamma and beta have theirs.
class BatchNormalizationOp : public Op {
 public:
  BatchNormalizationOp(PlanBuilder& b, const Node& node, bool relu, Value* in, Value* out)
      : in_(in),
        out_(out),
        epsilon_(node.layer.batch_normalization().epsilon()),
        examples_(b.examples()),
        trains_(b.groups().Trains(node) && node.trainable),
        gamma_(b.FindVariable(node, "gamma")),
        beta_(b.FindVariable(node, "beta")),
        moving_mean_(b.FindVariable(node, "moving_mean")),
        moving_variance_(b.FindVariable(node, "moving_variance")) {
    // Vectors are images of one pixel.
    const memory::dims dims = in->data->desc.dims();
    view_ = dims.size() == 2 ? MakeDesc({dims[0], dims[1], 1, 1}, Tag::nhwc) : in->data->desc;
    channels_ = MakeDesc({dims[1]}, Tag::x);
    auto flags = normalization_flags::none;
    if (gamma_ != nullptr) flags |= normalization_flags::use_scale;
    if (beta_ != nullptr) flags |= normalization_flags::use_shift;
    if (relu) flags |= normalization_flags::fuse_norm_relu;
    if (!trains_) flags |= normalization_flags::use_global_stats;
    flags_ = flags;
    const dnnl::batch_normalization_forward::desc desc(b.forward_kind(), view_, epsilon_, flags);
    forward_desc_ = dnnl::batch_normalization_forward::primitive_desc(desc, b.Attributes(), b.engine());

    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, b.Use(in->data, view_)}};
    out->data = b.New(in->data->desc);
    arguments.emplace_back(DNNL_ARG_DST, b.Use(out->data, view_));
    if (gamma_ != nullptr) arguments.emplace_back(DNNL_ARG_SCALE, b.ValueOf(*gamma_, channels_));
    if (beta_ != nullptr) arguments.emplace_back(DNNL_ARG_SHIFT, b.ValueOf(*beta_, channels_));
    if (trains_) {
      mean_ = b.New(channels_);
      variance_ = b.New(channels_);
    }
    arguments.emplace_back(DNNL_ARG_MEAN, trains_ ? mean_->memory : b.ValueOf(*moving_mean_, channels_));
    arguments.emplace_back(DNNL_ARG_VARIANCE, trains_ ? variance_->memory : b.ValueOf(*moving_variance_, channels_));
    if (relu && b.training()) {
      workspace_ = b.New(forward_desc_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_->memory);
    }
    forward_ = b.MakeCall(forward_desc_, dnnl::batch_normalization_forward(forward_desc_), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    const memory mean = trains_ ? b.Use(mean_) : b.ValueOf(*moving_mean_, channels_);
    const memory variance = trains_ ? b.Use(variance_) : b.ValueOf(*moving_variance_, channels_);
    if (trains_) {
      mean_gradient_ = b.GradientOf(*moving_mean_, channels_);
      variance_gradient_ = b.GradientOf(*moving_variance_, channels_);
    }
    if (!out_->needs_gradient) return;
    const bool variables = gamma_ != nullptr || beta_ != nullptr;
    const auto kind = variables ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
    const dnnl::batch_normalization_backward::desc desc(kind, view_, view_, epsilon_, flags_);
    const dnnl::batch_normalization_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    if (in_->needs_gradient) {
      sink_ = b.WriteGradient(in_, in_->data->desc);
    } else {
      sink_.tensor = b.New(in_->data->desc);  // the primitive computes it anyway
    }
    std::vector<std::pair<int, memory>> arguments = {
        {DNNL_ARG_SRC, b.Use(in_->data, view_)},
        {DNNL_ARG_MEAN, mean},
        {DNNL_ARG_VARIANCE, variance},
        {DNNL_ARG_DIFF_DST, b.Use(out_->gradient, view_)},
        {DNNL_ARG_DIFF_SRC, b.Use(sink_.tensor, view_)},
    };
    AddScaleAndShift(b, gamma_, beta_, channels_, &arguments);
    if (workspace_ != nullptr) arguments.emplace_back(DNNL_ARG_WORKSPACE, b.Use(workspace_));
    backward_ = b.MakeCall(pd, dnnl::batch_normalization_backward(pd), std::move(arguments));
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardVariables(const Run& run) override {
    if (trains_) {
      WriteSum(mean_, mean_gradient_);
      WriteSum(variance_, variance_gradient_);
    }
    if (backward_) backward_(run);
  }

  void BackwardInputs(const Run& run) override { sink_.Finish(run); }

 private:
  void WriteSum(Tensor* statistic, const memory& gradient) const {
    Scale(statistic->data(), static_cast<float>(examples_), static_cast<float*>(gradient.get_data_handle()),
          statistic->numbers());
  }

  Value* const in_;
  Value* const out_;
  const float epsilon_;
  const int64_t examples_;
  const bool trains_;
  const Variable* const gamma_;
  const Variable* const beta_;
  const Variable* const moving_mean_;
  const Variable* const moving_variance_;
  Desc view_, channels_;
  normalization_flags flags_ = normalization_flags::none;
  dnnl::batch_normalization_forward::primitive_desc forward_desc_;
  Tensor* mean_ = nullptr;
  Tensor* variance_ = nullptr;
  Tensor* workspace_ = nullptr;
  memory mean_gradient_, variance_gradient_;
  Call forward_, backward_;
  Sink sink_;
};

}  // namespace

void AddScaleAndShift(PlanBuilder& b, const Variable* gamma, const Variable* beta, const Desc& channels,
                      std::vector<std::pair<int, memory>>* arguments) {
  const auto add = [&](const Variable* variable, int value, int gradient) {
    if (variable == nullptr) return;
    arguments->emplace_back(value, b.ValueOf(*variable, channels));
    arguments->emplace_back(gradient,
                            b.Trains(*variable) ? b.GradientOf(*variable, channels) : b.New(channels)->memory);
  };
  add(gamma, DNNL_ARG_SCALE, DNNL_ARG_DIFF_SCALE);
  add(beta, DNNL_ARG_SHIFT, DNNL_ARG_DIFF_SHIFT);
}

std::unique_ptr<Op> MakeBatchNormalization(PlanBuilder& b, const Node& node, bool relu, Value* in, Value* out) {
  return std::make_unique<BatchNormalizationOp>(b, node, relu, in, out);
}

namespace {

void CompileBatchNormalization(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  const Node* const next = b.groups().JoinedActivationLayer(node);
  const bool relu = next != nullptr && b.groups().ActivationOf(*next).kind == v1::RELU;
  b.AddOp(node.variables, out, MakeBatchNormalization(b, node, relu, in[0], out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kBatchNormalization, CompileBatchNormalization},
    {LayerKind::kLayerNormalization, CompileOne<MakeLayerNormalization>},
    {LayerKind::kGroupNormalization, CompileOne<MakeGroupNormalization>},
};

}  // namespace

absl::Span<const Layer> NormalizationLayers() { return kLayers; }

}  // namespace cairn::onednn
