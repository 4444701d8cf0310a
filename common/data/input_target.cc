#include "common/data/input_target.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/data/wrapped_dataset.h"

namespace cairn {
namespace {

class ScaledTargets : public DatasetWithTargets {
 public:
  ScaledTargets(std::shared_ptr<const Dataset> examples, const InputScale& scale, bool input_itself)
      : DatasetWithTargets(std::move(examples)), scale_(scale), input_itself_(input_itself) {}

  int64_t label_size() const override { return input_itself_ ? example_size() : examples().label_size(); }

 private:
  absl::Status ReadWith(Element element, v1::Split split, int64_t index, uint8_t* example,
                        float* label) const override {
    const absl::Span<float> target(label, static_cast<size_t>(label_size()));
    if (!input_itself_) {
      CAIRN_RETURN_IF_ERROR(examples().ReadAs(element, split, index, example, label));
      for (float& t : target) t = t * scale_.scale + scale_.offset;
      return absl::OkStatus();
    }
    static thread_local std::vector<float> own;  // its label is not used
    own.resize(static_cast<size_t>(examples().label_size()));
    CAIRN_RETURN_IF_ERROR(examples().ReadAs(element, split, index, example, own.data()));
    TakeInput(element, example, scale_, target);
    return absl::OkStatus();
  }

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
