// Checks a job against the data that a worker found: shapes, labels, counts.
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/callback_check.h"
#include "common/model/data_check.h"
#include "common/model/external_check.h"
#include "common/model/job_check.h"
#include "common/model/model_inputs.h"
#include "common/model/outputs_check.h"
#include "common/model/step_check.h"
#include "common/model/strategy_check.h"
#include "common/model/target_check.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

absl::Status CheckShape(const CheckedJob& job, const v1::DataInfo& data) {
  const Shape &input = ModelInputShape(job.graph), expected = ExampleShape(job.spec.data(), input);
  const Shape example(data.example_shape().begin(), data.example_shape().end());
  if ((data.texts() > 0) != HasTexts(job.graph)) {
    return Bad("data.path: ", data.path(), " holds ", data.texts() > 0 ? "texts" : "numbers",
               ", but the model's inputs ", "take ",
               data.texts() > 0 ? "numbers; give it an input { text: true }" : "texts; give it an input of numbers");
  }
  const bool resized = data.format() == v1::Data::IMAGE_FOLDER && job.spec.data().image_height() == 0;
  if (resized && input.size() == 3 && (input[2] == 1 || input[2] == 3)) return absl::OkStatus();
  if (expected == example) return absl::OkStatus();
  if (const int32_t height = job.spec.data().image_height(), width = job.spec.data().image_width(); height > 0) {
    // An open input is what these fields have closed it to.
    const bool sized = example.size() == 3 && (example[0] != height || example[1] != width);
    return Bad("data.image_height: ", height, " x ", width,
               expected == input ? absl::StrCat(", as the model's input ", ToString(input)) : "",
               ", but the examples of ", data.path(), " are ", ToString(example),
               sized ? "; set image_height and image_width to that"
                     : "; leave image_height and image_width out, and set the input's shape to that");
  }
  return Bad(
      "model.layers[0].input.shape: ", ToString(input), ", but the examples of ", data.path(), " are ",
      ToString(example), "; set the shape to ", ToString(example),
      NumElements(input) == NumElements(example) && example.size() > input.size() ? " and add a flatten layer" : "");
}

// The label that decides how labels are interpreted, if it is known.
std::string Example(const v1::DataInfo& data) {
  return data.deciding_label().empty() ? "" : absl::StrCat(" (", data.deciding_label(), ")");
}

const char* OtherLabels(const v1::DataInfo& data) {
  return data.format() == v1::Data::TFRECORD ? "name another feature in data.tfrecord.label"
                                             : "another data.label_column";
}

absl::Status CheckLabelsOf(const v1::Loss& loss, const Node& output, const v1::DataInfo& data) {
  const v1::Loss::Kind kind = loss.kind();
  const std::string name = v1::Loss::Kind_Name(kind);
  const int64_t units = output.output[0];
  if (IsCategorical(kind)) {
    if (data.classes() == 0) {
      return Bad("loss.kind: ", name, " needs class numbers, but the labels of ", data.path(), " are plain numbers",
                 Example(data), "; mend them, use MEAN_SQUARED_ERROR, or ", OtherLabels(data));
    }
    if (units >= data.classes()) return absl::OkStatus();
    return Bad("layer \"", output.name, "\": ", units, " outputs, but ", data.path(), " has ", data.classes(),
               " classes", Example(data), "; set units: ", data.classes(),
               data.deciding_label().empty() ? "" : ", or mend the label");
  }
  const bool binary = kind == v1::Loss::BINARY_CROSSENTROPY || kind == v1::Loss::BINARY_FOCAL_CROSSENTROPY;
  if (!binary && kind != v1::Loss::CIRCLE && data.format() == v1::Data::CSV && data.class_names_size() > 0) {
    return Bad("loss.kind: ", name, " needs numbers, but the labels of ", data.path(), " are texts", Example(data),
               "; mend them, use SPARSE_CATEGORICAL_CROSSENTROPY for classes, or ", OtherLabels(data));
  }
  if (kind == v1::Loss::CIRCLE) {
    if (data.classes() > 0) return absl::OkStatus();  // the outputs are an embedding, of any length
    return Bad("loss.kind: ", name, " needs class numbers, but the labels of ", data.path(), " are plain numbers",
               Example(data), "; mend them, or ", OtherLabels(data));
  }
  if (units != 1) {
    return Bad("layer \"", output.name, "\": ", units, " outputs, but ", data.path(), " has one label an example, and ",
               name, " needs one for each output; use one output, or ", "SPARSE_CATEGORICAL_CROSSENTROPY for classes");
  }
  if (binary && data.classes() > 2) {
    return Bad("loss.kind: ", name, " tells two classes apart, but ", data.path(), " has ", data.classes(),
               "; use SPARSE_CATEGORICAL_CROSSENTROPY and a last layer of ", data.classes(), " outputs");
  }
  return absl::OkStatus();
}

absl::Status CheckLabels(const CheckedJob& job, const v1::DataInfo& data) {
  if (ExternalOf(job.spec) != nullptr) return absl::OkStatus();
  for (int i = 0; i < job.spec.outputs_size(); ++i) {
    if (!IsLabel(job.spec.data().targets(i))) continue;
    const v1::OutputLoss& output = job.spec.outputs(i);
    const absl::Status fits = CheckLabelsOf(output.loss(), OutputNode(job.graph, output.output()), data);
    if (!fits.ok()) return Bad("output \"", output.output(), "\": ", fits.message());
  }
  // Targets have the shape that the loss takes; their numbers are checked when they are read.
  if (!job.spec.data().targets().empty()) return absl::OkStatus();
  return CheckLabelsOf(job.spec.loss(), job.graph.output(), data);
}

}  // namespace

absl::Status CheckJobAgainstData(const CheckedJob& job, const v1::DataInfo& data) {
  CAIRN_RETURN_IF_ERROR(CheckShape(job, data));
  CAIRN_RETURN_IF_ERROR(CheckTargetsAgainstData(job.spec.data(), data.format()));
  CAIRN_RETURN_IF_ERROR(CheckLabels(job, data));
  CAIRN_RETURN_IF_ERROR(CheckCallbacksAgainstData(job.spec, data));
  CAIRN_RETURN_IF_ERROR(CheckDataPipelineAgainstData(job.spec, data));
  CAIRN_RETURN_IF_ERROR(CheckStrategyAgainstData(job.spec, data));
  const int64_t examples = static_cast<int64_t>(data.train_examples());
  const int64_t batch_size = job.spec.batch_size();
  if (examples == 0) {
    return Bad("data.path: ", data.path(),
               " has no training examples; check the path, and lower data.validation_split "
               "and data.test_split");
  }
  if (batch_size > examples) {
    return Bad("batch_size: ", batch_size, " is more than the ", examples, " training examples of ", data.path(),
               "; use a smaller one");
  }
  CAIRN_RETURN_IF_ERROR(CheckStepAgainstData(job.spec, examples, data.path()));
  return absl::OkStatus();
}

}  // namespace cairn
