#include <cstring>

#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;

// Whether an element-wise operation may work in the input's own buffer.
bool InPlace(const Value* in) { return in->readers == 1 && in->may_overwrite; }

Call MakeEltwise(PlanBuilder& b, algorithm algorithm, float alpha, float beta, Tensor* in, Tensor* out) {
  const dnnl::eltwise_forward::desc desc(b.forward_kind(), algorithm, in->desc, alpha, beta);
  const dnnl::eltwise_forward::primitive_desc pd(desc, b.Attributes(), b.engine());
  return b.MakeCall(pd, dnnl::eltwise_forward(pd), {{DNNL_ARG_SRC, b.Use(in)}, {DNNL_ARG_DST, b.Use(out)}});
}

// dx = dy * something, in the gradient's own buffer where it is the first share of it.
class ElementwiseOp : public Op {
 public:
  ElementwiseOp(PlanBuilder& b, Value* in, Value* out) : in_(in), out_(out) {
    b.Use(in->data);
    out->data = InPlace(in) ? in->data : b.New(in->data->desc);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    UseBackward(b);
    if (in_->readers == 1) {
      in_->gradient = out_->gradient;
      in_->gradient_written = true;
      target_ = out_->gradient;
    } else {
      sink_ = b.WriteGradient(in_, in_->data->desc);
      target_ = sink_.tensor;
    }
  }

  void BackwardInputs(const Run& run) override {
    if (target_ == nullptr) return;
    Backward(out_->gradient->data(), target_->data(), target_->numbers());
    sink_.Finish(run);
  }

 protected:
  virtual void UseBackward(PlanBuilder&) {}
  virtual void Backward(const float* dy, float* dx, int64_t count) = 0;  // dx may be dy

  Value* const in_;
  Value* const out_;

 private:
  Tensor* target_ = nullptr;
  Sink sink_;
};

class ActivationOp : public ElementwiseOp {
 public:
  ActivationOp(PlanBuilder& b, const Activation& activation, Value* in, Value* out)
      : ElementwiseOp(b, in, out), activation_(activation) {
    out->may_overwrite = false;
    algorithm eltwise = algorithm::eltwise_relu;
    if (activation.kind == v1::SIGMOID) eltwise = algorithm::eltwise_logistic;
    if (activation.kind == v1::TANH) eltwise = algorithm::eltwise_tanh;
    forward_ =
        MakeEltwise(b, eltwise, activation.kind == v1::LEAKY_RELU ? activation.slope : 0, 0, in->data, out->data);
  }
  void Forward(const Run& run) override { forward_(run); }

 private:
  void UseBackward(PlanBuilder& b) override { b.Use(out_->data); }
  void Backward(const float* dy, float* dx, int64_t count) override {
    if (dx != dy) std::memcpy(dx, dy, count * sizeof(float));
    ActivationBackward(activation_, out_->data->data(), dx, count);
  }

  const Activation activation_;
  Call forward_;
};

class RescalingOp : public ElementwiseOp {
 public:
  RescalingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : ElementwiseOp(b, in, out), scale_(node.layer.rescaling().scale()) {
    forward_ = MakeEltwise(b, algorithm::eltwise_linear, scale_, node.layer.rescaling().offset(), in->data, out->data);
  }
  void Forward(const Run& run) override { forward_(run); }

 private:
  void Backward(const float* dy, float* dx, int64_t count) override { Scale(dy, scale_, dx, count); }

  const float scale_;
  Call forward_;
};

// The mask counts in Keras' order; it is brought into the input's layout.
class DropoutOp : public ElementwiseOp {
 public:
  DropoutOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : ElementwiseOp(b, in, out), node_(node), count_(b.examples() * NumElements(node.output)) {
    const Desc layout = in->data->desc;
    mask_ = b.New(layout);
    plain_ = mask_;
    if (!IsPlain(layout)) {
      plain_ = b.New(MakeDesc(layout.dims(), Tag::nhwc));
      reorder_ = b.Reorder(plain_->memory, mask_->memory);
    }
  }

  void Forward(const Run& run) override {
    DropoutFactors(run.info, node_.id, node_.layer.dropout().rate(), count_, plain_->data());
    if (reorder_) reorder_(run);
    Multiply(in_->data->data(), mask_->data(), out_->data->data(), mask_->numbers());
  }

 private:
  void UseBackward(PlanBuilder& b) override { b.Use(mask_); }
  void Backward(const float* dy, float* dx, int64_t count) override { Multiply(dy, mask_->data(), dx, count); }

  const Node& node_;
  const int64_t count_;
  Tensor* mask_ = nullptr;
  Tensor* plain_ = nullptr;
  Call reorder_;
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

class AddOp : public Op {
 public:
  AddOp(PlanBuilder& b, const std::vector<Value*>& in, Value* out) : in_(in), out_(out) {
    const Desc layout = in[0]->data->desc;
    for (Value* value : in) sources_.push_back(b.Read(value->data, layout));
    out->data = b.New(layout);
  }

  void CompileBackward(PlanBuilder& b) override {
    bool handed_on = false;
    for (Value* in : in_) {
      if (!in->needs_gradient) continue;
      b.Use(out_->gradient);
      // One input that nobody else reads takes the buffer over; the others take copies.
      if (!handed_on && in->readers == 1 && in->data->desc == out_->data->desc) {
        handed_on = true;
        in->gradient = out_->gradient;
        in->gradient_written = true;
        continue;
      }
      sinks_.push_back(b.WriteGradient(in, out_->data->desc));
    }
  }

  void Forward(const Run& run) override {
    float* y = out_->data->data();
    const int64_t count = out_->data->numbers();
    for (const Source& source : sources_) source.Prepare(run);
    std::memcpy(y, sources_[0].tensor->data(), count * sizeof(float));
    for (size_t i = 1; i < sources_.size(); ++i) AddTo(sources_[i].tensor->data(), y, count);
  }

  void BackwardInputs(const Run& run) override {
    for (const Sink& sink : sinks_) {
      std::memcpy(sink.tensor->data(), out_->gradient->data(), out_->gradient->bytes);
      sink.Finish(run);
    }
  }

 private:
  const std::vector<Value*> in_;
  Value* const out_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
};

}  // namespace

std::unique_ptr<Op> MakeActivation(PlanBuilder& b, const Activation& activation, Value* in, Value* out) {
  return std::make_unique<ActivationOp>(b, activation, in, out);
}

std::unique_ptr<Op> MakeSoftmax(PlanBuilder& b, Value* in, Value* out) {
  return std::make_unique<SoftmaxOp>(b, in, out);
}

std::unique_ptr<Op> MakeRescaling(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<RescalingOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeDropout(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<DropoutOp>(b, node, in, out);
}

std::unique_ptr<Op> MakeAdd(PlanBuilder& b, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<AddOp>(b, in, out);
}

}  // namespace cairn::onednn
