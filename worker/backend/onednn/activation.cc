#include <cstring>

#include "common/base/check.h"
#include "worker/backend/onednn/elementwise.h"

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

}  // namespace cairn::onednn
