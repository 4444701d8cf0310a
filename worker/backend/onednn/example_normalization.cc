// Normalizations of each example by itself: LayerNormalization (by oneDNN) and GroupNormalization (by loops). Both work
// in the layout channels last.
#include <cstring>

#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/group_kernels.h"
#include "worker/backend/onednn/ops.h"
#include "worker/backend/onednn/scale_and_shift.h"
#include "worker/backend/rows.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

Desc PlainOf(const Desc& desc) {
  const memory::dims dims = desc.dims();
  return MakeDesc(dims, dims.size() == 2 ? Tag::nc : Tag::nhwc);
}

class LayerNormalizationOp : public Op {
 public:
  LayerNormalizationOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in),
        out_(out),
        epsilon_(node.layer.layer_normalization().epsilon()),
        plain_(PlainOf(in->data->desc)),
        view_(RowsOf(node, b.examples())),
        scale_and_shift_(b, node, view_.dims()[1]) {
    const Desc statistics = MakeDesc({view_.dims()[0]}, Tag::x);
    const dnnl::layer_normalization_forward::desc desc(b.forward_kind(), view_, statistics, epsilon_,
                                                       scale_and_shift_.flags());
    forward_desc_ = dnnl::layer_normalization_forward::primitive_desc(desc, b.Attributes(), b.engine());
    source_ = b.Read(in->data, plain_);
    out->data = b.New(plain_);
    Arguments arguments = {{DNNL_ARG_SRC, b.Use(source_.tensor, view_)}, {DNNL_ARG_DST, b.Use(out->data, view_)}};
    scale_and_shift_.AddForward(b, &arguments);
    if (b.training()) {
      mean_ = b.New(statistics);
      variance_ = b.New(statistics);
      arguments.emplace_back(DNNL_ARG_MEAN, mean_->memory);
      arguments.emplace_back(DNNL_ARG_VARIANCE, variance_->memory);
    }
    forward_ = b.MakeCall(forward_desc_, dnnl::layer_normalization_forward(forward_desc_), std::move(arguments));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    const dnnl::layer_normalization_backward::desc desc(scale_and_shift_.backward_kind(), view_, view_, mean_->desc,
                                                        epsilon_, scale_and_shift_.flags());
    const dnnl::layer_normalization_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    if (in_->needs_gradient) {
      sink_ = b.WriteGradient(in_, plain_);
    } else {
      sink_.tensor = b.New(plain_);  // the primitive computes it anyway
    }
    Arguments arguments = {{DNNL_ARG_SRC, b.Use(source_.tensor, view_)},
                           {DNNL_ARG_MEAN, b.Use(mean_)},
                           {DNNL_ARG_VARIANCE, b.Use(variance_)},
                           {DNNL_ARG_DIFF_DST, b.Use(out_->gradient, view_)},
                           {DNNL_ARG_DIFF_SRC, b.Use(sink_.tensor, view_)}};
    scale_and_shift_.AddBackward(b, &arguments);
    backward_ = b.MakeCall(pd, dnnl::layer_normalization_backward(pd), std::move(arguments));
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    forward_(run);
  }

  void BackwardVariables(const Run& run) override {
    if (backward_) backward_(run);
  }

  void BackwardInputs(const Run& run) override { sink_.Finish(run); }

 private:
  static Desc RowsOf(const Node& node, int64_t examples) {
    const int64_t channels = RowNumbers(node.layer.layer_normalization(), node.output);
    return MakeDesc({examples * NumElements(node.output) / channels, channels}, Tag::ab);
  }

  Value* const in_;
  Value* const out_;
  const float epsilon_;
  const Desc plain_;
  const Desc view_;  // [rows, channels]
  const ScaleAndShift scale_and_shift_;
  dnnl::layer_normalization_forward::primitive_desc forward_desc_;
  Source source_;
  Tensor* mean_ = nullptr;
  Tensor* variance_ = nullptr;
  Call forward_, backward_;
  Sink sink_;
};

class GroupNormalizationOp : public Op {
 public:
  GroupNormalizationOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : in_(in),
        out_(out),
        plain_(PlainOf(in->data->desc)),
        gamma_(b, b.FindVariable(node, "gamma")),
        beta_(b, b.FindVariable(node, "beta")) {
    const v1::GroupNormalization& norm = node.layer.group_normalization();
    shape_.examples = b.examples();
    shape_.channels = node.output.back();
    shape_.positions = NumElements(node.output) / shape_.channels;
    shape_.groups = norm.groups();
    shape_.epsilon = norm.epsilon();
    source_ = b.Read(in->data, plain_);
    statistics_ = b.New(MakeDesc({shape_.examples, 2 * shape_.groups}, Tag::nc));
    scratch_ = b.NewBytes(GroupScratchBytes(shape_));
    out->data = b.New(plain_);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    for (Tensor* tensor : {source_.tensor, out_->gradient, statistics_}) b.Use(tensor);
    backward_scratch_ = b.NewBytes(GroupScratchBytes(shape_));
    if (in_->needs_gradient) sink_ = b.WriteGradient(in_, plain_);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    GroupForward(shape_, source_.tensor->data(), {.gamma = gamma_.value(), .beta = beta_.value()}, Doubles(scratch_),
                 statistics_->data(), out_->data->data());
  }

  void BackwardVariables(const Run&) override {
    if (backward_scratch_ == nullptr) return;
    GroupBackwardSums(shape_, Normalized(), out_->gradient->data(), Doubles(backward_scratch_), gamma_.gradient(),
                      beta_.gradient());
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    GroupBackward(shape_, Normalized(), gamma_.value(), out_->gradient->data(), Doubles(backward_scratch_),
                  sink_.tensor->data());
    sink_.Finish(run);
  }

 private:
  GroupInput Normalized() const { return {.x = source_.tensor->data(), .statistics = statistics_->data()}; }
  static double* Doubles(Tensor* tensor) { return static_cast<double*>(tensor->memory.get_data_handle()); }

  Value* const in_;
  Value* const out_;
  const Desc plain_;
  const BoundVariable gamma_, beta_;
  GroupShape shape_;
  Source source_;
  Tensor* statistics_ = nullptr;
  Tensor* scratch_ = nullptr;
  Tensor* backward_scratch_ = nullptr;
  Sink sink_;
};

}  // namespace

std::unique_ptr<Op> MakeLayerNormalization(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<LayerNormalizationOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeGroupNormalization(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<GroupNormalizationOp>(b, node, in, out);
}

}  // namespace cairn::onednn
