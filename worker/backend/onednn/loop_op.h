// LoopOp: the base of operations that are loops over their inputs. Each input is in Keras' layout: channels last,
// without blocks.
#pragma once

#include <utility>
#include <vector>

#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {

// What the backward pass of a LoopOp reads besides the gradient.
enum class BackwardReads { kNothing, kInputs, kOutput };

class LoopOp : public Op {
 public:
  // inputs: their shapes, without the batch axis.
  LoopOp(PlanBuilder& b, std::vector<Value*> in, const std::vector<Shape>& inputs, const Shape& output, Value* out,
         BackwardReads reads)
      : in_(std::move(in)), out_(out), reads_(reads) {
    for (size_t i = 0; i < in_.size(); ++i) {
      descs_.push_back(PlainDesc(b.examples(), inputs[i]));
      sources_.push_back(b.Read(in_[i]->data, descs_[i]));
    }
    out->data = b.New(PlainDesc(b.examples(), output));
    if (reads == BackwardReads::kOutput) out->may_overwrite = false;
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!out_->needs_gradient) return;
    for (const Source& source : sources_) {
      if (reads_ == BackwardReads::kInputs) b.Use(source.tensor);
    }
    if (reads_ == BackwardReads::kOutput) b.Use(out_->data);
    b.Use(out_->gradient);
    UseBackward(b);
    sinks_.resize(in_.size());
    for (size_t i = 0; i < in_.size(); ++i) {
      if (in_[i]->needs_gradient) sinks_[i] = b.WriteGradient(in_[i], descs_[i]);
    }
    compiled_ = true;
  }

  void Forward(const Run& run) override {
    for (const Source& source : sources_) source.Prepare(run);
    Compute(run, out_->data->data());
  }

  void BackwardVariables(const Run& run) override {
    if (compiled_) Derive(run, out_->gradient->data());
  }

  void BackwardInputs(const Run& run) override {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      if (sinks_[i].tensor != nullptr) sinks_[i].Finish(run);
    }
  }

 protected:
  const float* x(size_t i = 0) const { return sources_[i].tensor->data(); }
  const float* y() const { return out_->data->data(); }
  float* dx(size_t i = 0) const { return sinks_[i].tensor == nullptr ? nullptr : sinks_[i].tensor->data(); }

  // Makes and uses the buffers that backward needs besides those of the inputs and of the output.
  virtual void UseBackward(PlanBuilder&) {}
  virtual void Compute(const Run& run, float* y) = 0;
  // Writes dx(i) of each input that has one, and the gradients of the variables.
  virtual void Derive(const Run& run, const float* dy) = 0;

 private:
  const std::vector<Value*> in_;
  Value* const out_;
  const BackwardReads reads_;
  std::vector<Desc> descs_;
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
  bool compiled_ = false;
};

// Calls fn(example) for each example, in parallel if there is enough work. Calls must not share anything.
template <typename Fn>
void ForExamples(int64_t examples, int64_t numbers, const Fn& fn) {
#pragma omp parallel for schedule(static) if (numbers >= kParallelNumbersMin)
  for (int64_t e = 0; e < examples; ++e) fn(e);
}

}  // namespace cairn::onednn
