#include "common/data/input_target.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn {
namespace {

class ScaledTargets : public Dataset {
 public:
  ScaledTargets(std::shared_ptr<const Dataset> examples, const InputScale& scale, bool input_itself)
      : examples_(std::move(examples)), scale_(scale), input_itself_(input_itself) {}

  const v1::DataInfo& info() const override { return examples_->info(); }
  int64_t size(v1::Split split) const override { return examples_->size(split); }
  int64_t example_size() const override { return examples_->example_size(); }
  int64_t label_size() const override { return input_itself_ ? example_size() : examples_->label_size(); }
  Element element() const override { return examples_->element(); }
  bool in_memory() const override { return examples_->in_memory(); }
  bool weighted() const override { return examples_->weighted(); }
  float Weight(v1::Split split, int64_t index) const override { return examples_->Weight(split, index); }

  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    return ReadWith(Element::kFloat, split, index, reinterpret_cast<uint8_t*>(example), label);
  }
  absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float* label) const override {
    return ReadWith(Element::kByte, split, index, example, label);
  }

 private:
  absl::Status ReadWith(Element element, v1::Split split, int64_t index, uint8_t* example, float* label) const {
    const absl::Span<float> target(label, static_cast<size_t>(label_size()));
    if (!input_itself_) {
      CAIRN_RETURN_IF_ERROR(examples_->ReadAs(element, split, index, example, label));
      for (float& t : target) t = t * scale_.scale + scale_.offset;
      return absl::OkStatus();
    }
    static thread_local std::vector<float> own;  // which nobody asks for
    own.resize(static_cast<size_t>(examples_->label_size()));
    CAIRN_RETURN_IF_ERROR(examples_->ReadAs(element, split, index, example, own.data()));
    TakeInput(element, example, scale_, target);
    return absl::OkStatus();
  }

  const std::shared_ptr<const Dataset> examples_;
  const InputScale scale_;
  const bool input_itself_;
};

}  // namespace

std::shared_ptr<const Dataset> WithTargets(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                           const v1::Loss& loss, const Graph& graph) {
  const bool input = TargetIsInput(data);
  if (!input && !TargetIsScaled(data, loss)) return examples;
  return std::make_shared<ScaledTargets>(std::move(examples), ScaleOfInput(graph), input);
}

void TakeInput(Element element, const uint8_t* example, const InputScale& scale, absl::Span<float> target) {
  if (element == Element::kByte) {
    BytesToFloats(example, static_cast<int64_t>(target.size()), target.data());
  } else {
    const float* from = reinterpret_cast<const float*>(example);
    std::copy(from, from + target.size(), target.begin());
  }
  if (scale.scale == 1 && scale.offset == 0) return;
  for (float& t : target) t = t * scale.scale + scale.offset;
}

}  // namespace cairn
