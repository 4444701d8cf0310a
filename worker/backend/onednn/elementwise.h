// ElementwiseOp: the base of operations whose output has the layout of their input, number for number.
#pragma once

#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {

// Whether an element-wise operation may write its output to the buffer of its input.
inline bool InPlace(const Value* in) { return in->readers == 1 && in->may_overwrite; }

// Backward computes dx = dy * something, directly in the input's gradient if it is the first share of it.
class ElementwiseOp : public Op {
 public:
  // keeps_input: backward needs the input.
  ElementwiseOp(PlanBuilder& b, bool keeps_input, Value* in, Value* out) : in_(in), out_(out) {
    b.Use(in->data);
    out->data = InPlace(in) && !keeps_input ? in->data : b.New(in->data->desc);
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    if (in_->readers == 1) {
      in_->gradient = out_->gradient;
      in_->gradient_written = true;
      target_ = out_->gradient;
    } else {
      sink_ = b.WriteGradient(in_, in_->data->desc);
      target_ = sink_.tensor;
    }
    CompileBackward(b, target_);
  }

  void BackwardInputs(const Run& run) override {
    if (target_ == nullptr) return;
    Backward(run, out_->gradient->data(), target_->data(), target_->numbers());
    sink_.Finish(run);
  }

 protected:
  // target: where to write dx; it may be the output's gradient.
  virtual void CompileBackward(PlanBuilder&, Tensor* /*target*/) {}
  virtual void Backward(const Run& run, const float* dy, float* dx, int64_t count) = 0;

  Value* const in_;
  Value* const out_;

 private:
  Tensor* target_ = nullptr;
  Sink sink_;
};

// y = algorithm(x), with oneDNN.
Call MakeEltwise(PlanBuilder& b, dnnl::algorithm algorithm, float alpha, float beta, Tensor* in, Tensor* out);

}  // namespace cairn::onednn
