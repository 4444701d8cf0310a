// Normalizations of each example by itself: LayerNormalization (oneDNN's) and GroupNormalization (loops). Both work
// channels last.
#include <cstring>

#include "worker/backend/onednn/group_kernels.h"
#include "worker/backend/onednn/ops.h"
#include "worker/backend/rows.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;

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
        gamma_(b.FindVariable(node, "gamma")),
        beta_(b.FindVariable(node, "beta")),
        plain_(PlainOf(in->data->desc)) {
    const int64_t channels = RowNumbers(node.layer.layer_normalization(), node.output);
    const int64_t rows = b.examples() * NumElements(node.output) / channels;
    view_ = MakeDesc({rows, channels}, Tag::ab);
    channels_ = MakeDesc({channels}, Tag::x);
    const Desc statistics = MakeDesc({rows}, Tag::x);
    flags_ = normalization_flags::none;
    if (gamma_ != nullptr) flags_ |= normalization_flags::use_scale;
    if (beta_ != nullptr) flags_ |= normalization_flags::use_shift;
    const dnnl::layer_normalization_forward::desc desc(b.forward_kind(), view_, statistics, epsilon_, flags_);
    forward_desc_ = dnnl::layer_normalization_forward::primitive_desc(desc, b.Attributes(), b.engine());
    source_ = b.Read(in->data, plain_);
    out->data = b.New(plain_);
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, b.Use(source_.tensor, view_)},
                                                     {DNNL_ARG_DST, b.Use(out->data, view_)}};
    if (gamma_ != nullptr) arguments.emplace_back(DNNL_ARG_SCALE, b.ValueOf(*gamma_, channels_));
    if (beta_ != nullptr) arguments.emplace_back(DNNL_ARG_SHIFT, b.ValueOf(*beta_, channels_));
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
    const bool variables = gamma_ != nullptr || beta_ != nullptr;
    const auto kind = variables ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data;
    const dnnl::layer_normalization_backward::desc desc(kind, view_, view_, mean_->desc, epsilon_, flags_);
    const dnnl::layer_normalization_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    if (in_->needs_gradient) {
      sink_ = b.WriteGradient(in_, plain_);
    } else {
      sink_.tensor = b.New(plain_);  // the primitive computes it anyway
    }
    std::vector<std::pair<int, memory>> arguments = {{DNNL_ARG_SRC, b.Use(source_.tensor, view_)},
                                                     {DNNL_ARG_MEAN, b.Use(mean_)},
                                                     {DNNL_ARG_VARIANCE, b.Use(variance_)},
                                                     {DNNL_ARG_DIFF_DST, b.Use(out_->gradient, view_)},
                                                     {DNNL_ARG_DIFF_SRC, b.Use(sink_.tensor, view_)}};
    AddScaleAndShift(b, gamma_, beta_, channels_, &arguments);
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
  Value* const in_;
  Value* const out_;
  const float epsilon_;
  const Variable* const gamma_;
  const Variable* const beta_;
  const Desc plain_;
  Desc view_, channels_;  // view_: [rows, channels]
  normalization_flags flags_ = normalization_flags::none;
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
      : in_(in), out_(out), plain_(PlainOf(in->data->desc)) {
    const v1::GroupNormalization& norm = node.layer.group_normalization();
    shape_.examples = b.examples();
    shape_.channels = node.output.back();
    shape_.positions = NumElements(node.output) / shape_.channels;
    shape_.groups = norm.groups();
    shape_.epsilon = norm.epsilon();
    gamma_ = b.FindVariable(node, "gamma");
    beta_ = b.FindVariable(node, "beta");
    const Desc channels = MakeDesc({shape_.channels}, Tag::x);
    if (gamma_ != nullptr) gamma_value_ = b.ValueOf(*gamma_, channels);
    if (beta_ != nullptr) beta_value_ = b.ValueOf(*beta_, channels);
    if (gamma_ != nullptr && b.Trains(*gamma_)) gamma_gradient_ = b.GradientOf(*gamma_, channels);
    if (beta_ != nullptr && b.Trains(*beta_)) beta_gradient_ = b.GradientOf(*beta_, channels);
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
    GroupForward(shape_, source_.tensor->data(), Handle(gamma_value_), Handle(beta_value_), Doubles(scratch_),
                 statistics_->data(), out_->data->data());
  }

  void BackwardVariables(const Run&) override {
    if (backward_scratch_ == nullptr) return;
    GroupBackwardSums(shape_, source_.tensor->data(), statistics_->data(), out_->gradient->data(),
                      Doubles(backward_scratch_), Handle(gamma_gradient_), Handle(beta_gradient_));
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    GroupBackward(shape_, source_.tensor->data(), statistics_->data(), Handle(gamma_value_), out_->gradient->data(),
                  Doubles(backward_scratch_), sink_.tensor->data());
    sink_.Finish(run);
  }

 private:
  static float* Handle(const memory& memory) {
    return memory ? static_cast<float*>(memory.get_data_handle()) : nullptr;
  }
  static double* Doubles(Tensor* tensor) { return static_cast<double*>(tensor->memory.get_data_handle()); }

  Value* const in_;
  Value* const out_;
  const Desc plain_;
  GroupShape shape_;
  const Variable* gamma_ = nullptr;
  const Variable* beta_ = nullptr;
  memory gamma_value_, beta_value_, gamma_gradient_, beta_gradient_;
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
