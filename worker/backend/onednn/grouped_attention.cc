// GroupQueryAttention by loops (worker/backend/grouped_attention.h).
#include "worker/backend/grouped_attention.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/backend/onednn/bound_variable.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/onednn/weights_dropout.h"

namespace cairn::onednn {
namespace {

class GroupedAttentionOp : public LoopOp {
 public:
  GroupedAttentionOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, const std::vector<Shape>& shapes,
                     Value* out)
      : LoopOp(b, in, shapes, node.output, out, BackwardReads::kInputs),
        a_(GroupedAttentionOf(node, shapes, b.examples())),
        weights_(b.New(MakeDesc({a_.weights()}, Tag::x))),
        dropout_(b, node, b.groups().Trains(node) ? a_.dropout : 0.0f, a_.seed, weights_) {
    for (int part = 0; part < kGroupedParts; ++part) {
      const auto variable = [&](const char* which) {
        return b.FindVariable(node, absl::StrCat(kGroupedNames[part], "/", which).c_str());
      };
      const Variable *const kernel = variable("kernel"), *const bias = variable("bias");
      kernels_[part] = BoundVariable(b, kernel);
      biases_[part] = BoundVariable(b, bias);
      numbers_[part] = kernel == nullptr ? 0 : kernel->size;
      bias_numbers_[part] = bias == nullptr ? 0 : bias->size;
    }
    for (Tensor** of_query : {&query_, &heads_}) *of_query = b.New(MakeDesc({a_.of_query()}, Tag::x));
    if (a_.gated) gate_ = b.New(MakeDesc({a_.of_query()}, Tag::x));
    for (Tensor** of_key : {&key_, &value_}) *of_key = b.New(MakeDesc({a_.of_key()}, Tag::x));
  }

 private:
  void UseBackward(PlanBuilder& b) override {
    for (Tensor* tensor : {query_, key_, value_, heads_, weights_}) b.Use(tensor);
    if (gate_ != nullptr) b.Use(gate_);
    dropout_.CompileBackward(b);
  }

  GroupedInputs<float> Inputs() const {
    GroupedInputs<float> in;
    for (size_t i = 0; i < 3; ++i) in.x[i] = x(i);
    for (int part = 0; part < kGroupedParts; ++part) {
      in.weights.kernel[part] = kernels_[part].value();
      in.weights.bias[part] = biases_[part].value();
    }
    in.factors = dropout_.factors() == nullptr ? nullptr : dropout_.factors()->data();
    return in;
  }
  GroupedBuffers<float> Buffers() const {
    return {query_->data(),   key_->data(),  value_->data(), gate_ == nullptr ? nullptr : gate_->data(),
            weights_->data(), heads_->data()};
  }

  void Compute(const Run& run, float* y) override {
    std::fill_n(weights_->data(), a_.weights(), 0.0f);
    dropout_.Forward(run);  // draws the factors; the weights come after it
    GroupedForward(a_, Inputs(), Buffers(), y);
  }

  void Derive(const Run&, const float* dy) override {
    std::vector<double> kernels[kGroupedParts], biases[kGroupedParts], inputs[3];
    GroupedGradients g;
    for (int part = 0; part < kGroupedParts; ++part) {
      if (kernels_[part].trains()) kernels[part].assign(static_cast<size_t>(numbers_[part]), 0.0);
      if (biases_[part].trains()) biases[part].assign(static_cast<size_t>(bias_numbers_[part]), 0.0);
      g.kernel[part] = kernels[part].empty() ? nullptr : kernels[part].data();
      g.bias[part] = biases[part].empty() ? nullptr : biases[part].data();
    }
    const int64_t sizes[] = {a_.examples * a_.queries * a_.query_in, a_.examples * a_.keys * a_.value_in,
                             a_.examples * a_.keys * a_.key_in};
    double** const to[] = {&g.query, &g.value, &g.key};
    for (size_t i = 0; i < 3; ++i) {
      if (dx(i) == nullptr) continue;
      inputs[i].assign(static_cast<size_t>(sizes[i]), 0.0);
      *to[i] = inputs[i].data();
    }
    GroupedBackward(a_, Inputs(), Buffers(), dy, g);
    for (int part = 0; part < kGroupedParts; ++part) {
      std::copy(kernels[part].begin(), kernels[part].end(), kernels_[part].gradient());
      std::copy(biases[part].begin(), biases[part].end(), biases_[part].gradient());
    }
    for (size_t i = 0; i < 3; ++i) std::copy(inputs[i].begin(), inputs[i].end(), dx(i));
  }

  const GroupedAttention a_;
  Tensor* const weights_;
  WeightsDropout dropout_;
  BoundVariable kernels_[kGroupedParts], biases_[kGroupedParts];
  int64_t numbers_[kGroupedParts] = {}, bias_numbers_[kGroupedParts] = {};
  Tensor *query_ = nullptr, *key_ = nullptr, *value_ = nullptr, *gate_ = nullptr, *heads_ = nullptr;
};

std::unique_ptr<Op> MakeGroupedAttention(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  std::vector<Value*> values = in;
  std::vector<Shape> shapes;
  for (const int input : node.inputs) shapes.push_back(b.graph().nodes()[static_cast<size_t>(input)].output);
  if (values.size() == 2) {  // the value is the key, too
    values.push_back(values[1]);
    shapes.push_back(shapes[1]);
  }
  return std::make_unique<GroupedAttentionOp>(b, node, values, shapes, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kGroupQueryAttention, CompileAll<MakeGroupedAttention>},
};

}  // namespace

absl::Span<const Layer> GroupedAttentionLayers() { return kLayers; }

}  // namespace cairn::onednn
