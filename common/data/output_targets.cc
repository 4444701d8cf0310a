#include "common/data/output_targets.h"

#include <utility>

#include "common/data/input_target.h"
#include "common/data/wrapped_dataset.h"
#include "common/model/job_outputs.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

struct Part {
  int64_t begin = 0, size = 0;
};

class OutputTargets : public DatasetWithTargets {
 public:
  // input: the part of the target that is the example itself. pictures: the part that is scaled like pixels. size 0:
  // there is none.
  OutputTargets(std::shared_ptr<const Dataset> examples, const InputScale& scale, Part input, Part pictures)
      : DatasetWithTargets(std::move(examples)), scale_(scale), input_(input), pictures_(pictures) {}

 private:
  absl::Status ReadWith(Element element, v1::Split split, int64_t index, uint8_t* example,
                        float* label) const override {
    CAIRN_RETURN_IF_ERROR(examples().ReadAs(element, split, index, example, label));
    if (input_.size == example_size()) {
      TakeInput(element, example, scale_, absl::MakeSpan(label + input_.begin, static_cast<size_t>(input_.size)));
    }
    for (int64_t i = pictures_.begin; i < pictures_.begin + pictures_.size; ++i) {
      label[i] = label[i] * scale_.scale + scale_.offset;
    }
    return absl::OkStatus();
  }

  const InputScale scale_;
  const Part input_, pictures_;
};

Part PartOf(const v1::Data& data, int target) {
  if (target < 0) return {};
  const auto& shape = data.targets(target).shape();
  return {TargetPlace(data, target), NumElements(Shape(shape.begin(), shape.end()))};
}

}  // namespace

std::shared_ptr<const Dataset> WithJobTargets(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                              const v1::JobSpec& spec, const Graph& graph) {
  if (!TrainsOutputs(spec)) return WithTargets(std::move(examples), data, spec.loss(), graph);
  const int pictures = PictureTargetOf(data);
  const bool classes = pictures >= 0 && pictures < spec.outputs_size() &&
                       spec.outputs(pictures).loss().kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
  const Part input = PartOf(data, InputTargetOf(data)), scaled = classes ? Part() : PartOf(data, pictures);
  if (input.size == 0 && scaled.size == 0) return examples;
  return std::make_shared<OutputTargets>(std::move(examples), ScaleOfInput(graph), input, scaled);
}

}  // namespace cairn
