#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"
#include "worker/backend/onednn/scale_and_shift.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;

// The mean and the variance that a batch normalization uses: those of the batch, or the moving ones. The gradient of a
// moving statistic is the batch's statistic times the number of examples (backend.h, invariant 2).
class BatchStatistics {
 public:
  BatchStatistics(const PlanBuilder& b, const Node& node, int64_t channels)
      : examples_(b.examples()),
        of_batch_(b.groups().Trains(node) && node.trainable),
        channels_(MakeDesc({channels}, Tag::x)),
        mean_{b.FindVariable(node, "moving_mean")},
        variance_{b.FindVariable(node, "moving_variance")} {}

  // Whether they are those of the batch. A frozen layer (node.trainable false), and one that is computed as in
  // inference (InfersAlways), uses the moving ones in training, too.
  bool of_batch() const { return of_batch_; }

  void AddForward(PlanBuilder& b, Arguments* arguments) {
    for (Statistic* s : {&mean_, &variance_}) {
      if (of_batch_) s->batch = b.New(channels_);
    }
    arguments->emplace_back(DNNL_ARG_MEAN, of_batch_ ? mean_.batch->memory : b.ValueOf(*mean_.moving, channels_));
    arguments->emplace_back(DNNL_ARG_VARIANCE,
                            of_batch_ ? variance_.batch->memory : b.ValueOf(*variance_.moving, channels_));
  }

  void CompileBackward(PlanBuilder& b) {
    for (Statistic* s : {&mean_, &variance_}) {
      if (!of_batch_) continue;
      b.Use(s->batch);
      s->gradient = b.GradientOf(*s->moving, channels_);
    }
  }
  void AddBackward(PlanBuilder& b, Arguments* arguments) const {
    arguments->emplace_back(DNNL_ARG_MEAN, of_batch_ ? mean_.batch->memory : b.ValueOf(*mean_.moving, channels_));
    arguments->emplace_back(DNNL_ARG_VARIANCE,
                            of_batch_ ? variance_.batch->memory : b.ValueOf(*variance_.moving, channels_));
  }

  void WriteGradients() const {
    if (!of_batch_) return;
    for (const Statistic* s : {&mean_, &variance_}) {
      Scale(s->batch->data(), static_cast<float>(examples_), static_cast<float*>(s->gradient.get_data_handle()),
            s->batch->numbers());
    }
  }

 private:
  struct Statistic {
    const Variable* moving = nullptr;
    Tensor* batch = nullptr;  // null: the moving one is used
    memory gradient;          // of the moving one
  };

  const int64_t examples_;
  const bool of_batch_;
  const Desc channels_;
  Statistic mean_, variance_;
};

class BatchNormalizationOp : public Op {
 public:
  BatchNormalizationOp(PlanBuilder& b, const Node& node, bool relu, Value* in, Value* out)
      : in_(in),
        out_(out),
        epsilon_(node.layer.batch_normalization().epsilon()),
        view_(ViewOf(in->data->desc)),
        scale_and_shift_(b, node, view_.dims()[1]),
        statistics_(b, node, view_.dims()[1]),
        flags_(scale_and_shift_.flags()) {
    if (relu) flags_ |= normalization_flags::fuse_norm_relu;
    if (!statistics_.of_batch()) flags_ |= normalization_flags::use_global_stats;
    const dnnl::batch_normalization_forward::desc desc(b.forward_kind(), view_, epsilon_, flags_);
    forward_desc_ = dnnl::batch_normalization_forward::primitive_desc(desc, b.Attributes(), b.engine());

    Arguments arguments = {{DNNL_ARG_SRC, b.Use(in->data, view_)}};
    out->data = b.New(in->data->desc);
    arguments.emplace_back(DNNL_ARG_DST, b.Use(out->data, view_));
    scale_and_shift_.AddForward(b, &arguments);
    statistics_.AddForward(b, &arguments);
    if (relu && b.training()) {
      workspace_ = b.New(forward_desc_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_->memory);
    }
    forward_ = b.MakeCall(forward_desc_, dnnl::batch_normalization_forward(forward_desc_), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    statistics_.CompileBackward(b);
    if (!out_->needs_gradient) return;
    const dnnl::batch_normalization_backward::desc desc(scale_and_shift_.backward_kind(), view_, view_, epsilon_,
                                                        flags_);
    const dnnl::batch_normalization_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    if (in_->needs_gradient) {
      sink_ = b.WriteGradient(in_, in_->data->desc);
    } else {
      sink_.tensor = b.New(in_->data->desc);  // the primitive computes it anyway
    }
    Arguments arguments = {{DNNL_ARG_SRC, b.Use(in_->data, view_)},
                           {DNNL_ARG_DIFF_DST, b.Use(out_->gradient, view_)},
                           {DNNL_ARG_DIFF_SRC, b.Use(sink_.tensor, view_)}};
    statistics_.AddBackward(b, &arguments);
    scale_and_shift_.AddBackward(b, &arguments);
    if (workspace_ != nullptr) arguments.emplace_back(DNNL_ARG_WORKSPACE, b.Use(workspace_));
    backward_ = b.MakeCall(pd, dnnl::batch_normalization_backward(pd), std::move(arguments));
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardVariables(const Run& run) override {
    statistics_.WriteGradients();
    if (backward_) backward_(run);
  }

  void BackwardInputs(const Run& run) override { sink_.Finish(run); }

 private:
  // Vectors are images of one pixel.
  static Desc ViewOf(const Desc& desc) {
    const memory::dims dims = desc.dims();
    return dims.size() == 2 ? MakeDesc({dims[0], dims[1], 1, 1}, Tag::nhwc) : desc;
  }

  Value* const in_;
  Value* const out_;
  const float epsilon_;
  const Desc view_;
  const ScaleAndShift scale_and_shift_;
  BatchStatistics statistics_;
  normalization_flags flags_;
  dnnl::batch_normalization_forward::primitive_desc forward_desc_;
  Tensor* workspace_ = nullptr;  // of the relu; null: no relu
  Call forward_, backward_;
  Sink sink_;
};

}  // namespace

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
