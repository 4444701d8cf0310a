#include <cstring>

#include "common/base/check.h"
#include "worker/backend/fusion.h"
#include "worker/backend/onednn/elementwise.h"
#include "worker/backend/onednn/features.h"

namespace cairn::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

struct Eltwise {
  algorithm kind;
  float alpha = 0, beta = 0;
};

Eltwise EltwiseOf(const Activation& f) {
  switch (f.kind) {
    case v1::RELU: return {algorithm::eltwise_relu};
    case v1::LEAKY_RELU: return {algorithm::eltwise_relu, f.alpha};
    case v1::SIGMOID: return {algorithm::eltwise_logistic};
    case v1::TANH: return {algorithm::eltwise_tanh};
    case v1::ELU: return {algorithm::eltwise_elu, f.alpha};
    case v1::GELU: return {algorithm::eltwise_gelu_erf};
    case v1::GELU_TANH: return {algorithm::eltwise_gelu_tanh};
    case v1::SILU: return {algorithm::eltwise_swish, 1};
    case v1::SOFTPLUS: return {algorithm::eltwise_soft_relu};
    case v1::RELU6: return {algorithm::eltwise_clip, 0, 6};
    default: break;
  }
  CAIRN_CHECK(false, "no element-wise activation");
}

class ActivationOp : public ElementwiseOp {
 public:
  ActivationOp(PlanBuilder& b, const Activation& activation, Value* in, Value* out)
      : ElementwiseOp(b, b.training() && activation.needs_input(), in, out), activation_(activation) {
    out->may_overwrite = !b.training() || activation.needs_input();
    const Eltwise f = EltwiseOf(activation);
    forward_ = MakeEltwise(b, f.kind, f.alpha, f.beta, in->data, out->data);
  }
  void Forward(const Run& run) override { forward_(run); }

 private:
  void CompileBackward(PlanBuilder& b, Tensor* target) override {
    if (!activation_.needs_input()) {
      b.Use(out_->data);
      return;
    }
    const Eltwise f = EltwiseOf(activation_);
    const Desc& desc = in_->data->desc;
    const dnnl::eltwise_forward::primitive_desc forward({b.forward_kind(), f.kind, desc, f.alpha, f.beta},
                                                        b.Attributes(), b.engine());
    const dnnl::eltwise_backward::primitive_desc pd({f.kind, desc, desc, f.alpha, f.beta}, b.Attributes(), b.engine(),
                                                    forward);
    backward_ = b.MakeCall(pd, dnnl::eltwise_backward(pd),
                           {{DNNL_ARG_SRC, b.Use(in_->data)},
                            {DNNL_ARG_DIFF_DST, b.Use(out_->gradient)},
                            {DNNL_ARG_DIFF_SRC, b.Use(target)}});
  }

  void Backward(const Run& run, const float* dy, float* dx, int64_t count) override {
    if (backward_) return backward_(run);
    if (dx != dy) std::memcpy(dx, dy, count * sizeof(float));
    ActivationBackward(activation_, out_->data->data(), dx, count);
  }

  const Activation activation_;
  Call forward_, backward_;
};

class SoftmaxOp : public Op {
 public:
  SoftmaxOp(PlanBuilder& b, Value* in, Value* out) : in_(in), out_(out) {
    const dnnl::softmax_forward::desc desc(b.forward_kind(), in->data->desc, 1);
    forward_desc_ = dnnl::softmax_forward::primitive_desc(desc, b.Attributes(), b.engine());
    const memory src = b.Use(in->data);
    out->data = b.New(in->data->desc);
    out->may_overwrite = false;
    forward_ = b.MakeCall(forward_desc_, dnnl::softmax_forward(forward_desc_),
                          {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, out->data->memory}});
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    sink_ = b.WriteGradient(in_, in_->data->desc);
    const dnnl::softmax_backward::desc desc(out_->gradient->desc, out_->data->desc, 1);
    const dnnl::softmax_backward::primitive_desc pd(desc, b.Attributes(), b.engine(), forward_desc_);
    backward_ = b.MakeCall(pd, dnnl::softmax_backward(pd),
                           {{DNNL_ARG_DST, b.Use(out_->data)},
                            {DNNL_ARG_DIFF_DST, b.Use(out_->gradient)},
                            {DNNL_ARG_DIFF_SRC, sink_.tensor->memory}});
  }

  void Forward(const Run& run) override { forward_(run); }

  void BackwardInputs(const Run& run) override {
    if (!backward_) return;
    backward_(run);
    sink_.Finish(run);
  }

 private:
  Value* const in_;
  Value* const out_;
  dnnl::softmax_forward::primitive_desc forward_desc_;
  Call forward_, backward_;
  Sink sink_;
};

// y = x where x > 0, else alpha * x; channels last. Axes that share an alpha have the stride 0 in it. The gradient of
// alpha is added up in the order of the numbers.
class PReluOp : public Op {
 public:
  PReluOp(PlanBuilder& b, const Node& node, Value* in, Value* out) : in_(in), out_(out), examples_(b.examples()) {
    const Variable& alpha = b.graph().variables()[node.variables[0]];
    const Desc desc = MakeDesc({alpha.size}, Tag::x);
    size_ = NumElements(node.output);
    places_.resize(size_);
    for (int64_t i = 0; i < size_; ++i) places_[i] = PlaceOf(i, node.output, alpha.shape);
    numbers_ = alpha.size;
    alpha_ = b.ValueOf(alpha, desc);
    if (b.Trains(alpha)) gradient_ = b.GradientOf(alpha, desc);
    source_ = b.Read(in->data, PlainDesc(examples_, node.output));
    out->data = b.New(source_.tensor->desc);
  }

  void CompileBackward(PlanBuilder& b) override {
    b.Use(source_.tensor);
    b.Use(out_->gradient);
    if (in_->needs_gradient) sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    const float *x = source_.tensor->data(), *alpha = static_cast<const float*>(alpha_.get_data_handle());
    float* y = out_->data->data();
    ForEach([&](int64_t i, int64_t place) { y[i] = x[i] > 0 ? x[i] : alpha[place] * x[i]; });
  }

  void BackwardVariables(const Run&) override {
    if (!gradient_) return;
    const float *x = source_.tensor->data(), *dy = out_->gradient->data();
    std::vector<double> sums(numbers_, 0.0);
    ForEach([&](int64_t i, int64_t place) {
      if (x[i] < 0) sums[place] += dy[i] * x[i];
    });
    std::copy(sums.begin(), sums.end(), static_cast<float*>(gradient_.get_data_handle()));
  }

  // The gradient at 0 is 0, as for relu(x) - alpha * relu(-x).
  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    const float *x = source_.tensor->data(), *dy = out_->gradient->data(),
                *alpha = static_cast<const float*>(alpha_.get_data_handle());
    float* dx = sink_.tensor->data();
    ForEach([&](int64_t i, int64_t place) { dx[i] = x[i] > 0 ? dy[i] : x[i] < 0 ? dy[i] * alpha[place] : 0.0f; });
    sink_.Finish(run);
  }

 private:
  static int64_t PlaceOf(int64_t i, const Shape& shape, const Shape& alpha) {
    int64_t place = 0, stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; i /= shape[axis]) {
      if (alpha[axis] != 1) place += i % shape[axis] * stride;
      stride *= alpha[axis];
    }
    return place;
  }

  // Calls fn(number, index of its alpha), in order.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (int64_t n = 0; n < examples_; ++n) {
      for (int64_t i = 0; i < size_; ++i) fn(n * size_ + i, places_[i]);
    }
  }

  Value* const in_;
  Value* const out_;
  const int64_t examples_;
  int64_t size_ = 0, numbers_ = 0;  // of an example, of alpha
  std::vector<int64_t> places_;     // of alpha, for each number of an example
  memory alpha_, gradient_;
  Source source_;
  Sink sink_;
};

std::unique_ptr<Op> MakePRelu(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<PReluOp>(b, node, in, out);
}

}  // namespace

void AppendActivation(const Activation& activation, dnnl::primitive_attr* attributes) {
  if (activation.linear()) return;
  const Eltwise f = EltwiseOf(activation);
  dnnl::post_ops post;
  post.append_eltwise(1, f.kind, f.alpha, f.beta);
  attributes->set_post_ops(post);
}

Call ApplyActivation(PlanBuilder& b, const Activation& activation, Tensor* tensor) {
  const Eltwise f = EltwiseOf(activation);
  return MakeEltwise(b, f.kind, f.alpha, f.beta, tensor, tensor);
}

std::unique_ptr<Op> MakeActivation(PlanBuilder& b, const Activation& activation, Value* in, Value* out) {
  return std::make_unique<ActivationOp>(b, activation, in, out);
}

std::unique_ptr<Op> MakeSoftmax(PlanBuilder& b, Value* in, Value* out) {
  return std::make_unique<SoftmaxOp>(b, in, out);
}

namespace {

void CompileActivation(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  if (node.activation == v1::GLU) return b.AddOp({}, out, MakeTensorOp(b, node, in, out));
  if (IsFurtherActivation(node)) return b.AddOp({}, out, MakeFurtherActivation(b, node, in[0], out));
  const Activation activation = b.groups().ActivationOf(node);
  b.AddOp({}, out, activation.elementwise() ? MakeActivation(b, activation, in[0], out) : MakeSoftmax(b, in[0], out));
}

constexpr Layer kLayers[] = {
    {LayerKind::kActivation, CompileActivation},
    {LayerKind::kPReLU, CompileOne<MakePRelu>},
};

}  // namespace

absl::Span<const Layer> ActivationLayers() { return kLayers; }

}  // namespace cairn::onednn
