// WeightsDropout: dropout of the weights of an attention layer, between the softmax and the product with the values.
//
// Part of an Op: compiled, then run, on one thread at a time.
#pragma once

#include <cstdint>

#include "worker/backend/dropout.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/kernels.h"

namespace cairn::onednn {

class WeightsDropout {
 public:
  // rate 0: no dropout. seed: the layer's own. weights: what the softmax writes.
  WeightsDropout(PlanBuilder& b, const Node& node, float rate, uint64_t seed, Tensor* weights)
      : node_(node.id), rate_(rate), seed_(seed), weights_(weights), dropped_(weights) {
    if (rate == 0) return;
    factors_ = b.New(weights->desc);
    dropped_ = b.New(weights->desc);
  }

  void CompileBackward(PlanBuilder& b) {
    b.Use(dropped_);
    if (factors_ != nullptr) b.Use(factors_);
  }

  // Computes dropped() from the weights.
  void Forward(const Run& run) {
    if (factors_ == nullptr) return;
    const int64_t count = factors_->numbers();
    if (seed_ == 0) {
      DropoutFactors(run.info, node_, rate_, count, factors_->data());
    } else {
      DropoutMask(run.info, node_, rate_, seed_).Fill(0, absl::MakeSpan(factors_->data(), static_cast<size_t>(count)));
    }
    Multiply(weights_->data(), factors_->data(), dropped_->data(), count);
  }

  // The weights after dropout; without dropout the weights themselves.
  Tensor* dropped() const { return dropped_; }
  // The factor of each weight; null: no dropout.
  Tensor* factors() const { return factors_; }

 private:
  const int node_;
  const float rate_;
  const uint64_t seed_;
  Tensor* const weights_;
  Tensor* dropped_;
  Tensor* factors_ = nullptr;
};

}  // namespace cairn::onednn
