#include "common/model/data_check.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/base/roots.h"
#include "common/model/limits.h"
#include "common/model/model_inputs.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

constexpr int32_t kPrefetchDefault = 2;

// ---- data ----

// texts: whether the model takes texts.
absl::Status CheckTfRecord(const v1::Data& data, const Shape& input, bool texts) {
  if (!data.has_tfrecord()) return absl::OkStatus();
  const v1::TfRecord& t = data.tfrecord();
  if (texts ? t.encoding() != v1::TfRecord::TEXT && t.encoding() != v1::TfRecord::ENCODING_AUTO
            : t.encoding() == v1::TfRecord::TEXT) {
    return Bad("data.tfrecord.encoding: ", v1::TfRecord::Encoding_Name(t.encoding()), ", but the model's input takes ",
               texts ? "texts" : "numbers; give it an input with text: true", "; leave encoding out");
  }
  if (texts && t.shape_size() > 0)
    return Bad("data.tfrecord.shape: of numbers, but the model takes texts; leave it out");
  if (data.format() != v1::Data::TFRECORD && data.format() != v1::Data::AUTO) {
    return Bad("data.tfrecord: only for format TFRECORD, not ", v1::Data::Format_Name(data.format()),
               "; leave one of them out");
  }
  if (t.input().size() > kFeatureNameBytesMax || t.label().size() > kFeatureNameBytesMax) {
    return Bad("data.tfrecord: a feature's name of more than ", kFeatureNameBytesMax, " bytes; use a shorter one");
  }
  if (!t.input().empty() && t.input() == t.label()) {
    return Bad("data.tfrecord.label: \"", t.label(), "\" is the input too; name another feature");
  }
  if (!v1::TfRecord::Encoding_IsValid(t.encoding())) {
    return Bad("data.tfrecord.encoding: ", static_cast<int>(t.encoding()),
               " is not known; use JPEG_OR_PNG, RAW_UINT8, RAW_FLOAT32, NUMBERS, TEXT, or leave it out");
  }
  if (t.shape_size() == 0) return absl::OkStatus();
  Shape shape(t.shape().begin(), t.shape().end());
  int64_t numbers = 1;
  for (int64_t d : shape) {
    if (d < 1 || d > kLayerOutputMax / numbers) {
      return Bad("data.tfrecord.shape: ", ToString(shape),
                 " has a size that is not positive, or too many numbers; use that of one example");
    }
    numbers *= d;
  }
  if (shape.size() > kFeatureDimensionsMax)
    return Bad("data.tfrecord.shape: more than ", kFeatureDimensionsMax, " sizes; use fewer");
  if (numbers != NumElements(input)) {
    return Bad("data.tfrecord.shape: ", ToString(shape), " has ", numbers, " numbers, the model's input ",
               ToString(input), " has ", NumElements(input), "; make them equal, or leave shape out");
  }
  return absl::OkStatus();
}

absl::Status CheckMaxLength(const v1::Data& data) {
  if (data.max_length() == 0) return absl::OkStatus();
  if (data.max_length() < 0) {
    return Bad("data.max_length: ", data.max_length(), " is negative; use the bytes of a text, or leave it out");
  }
  if (data.format() == v1::Data::AUTO || data.format() == v1::Data::TEXT_FOLDER) return absl::OkStatus();
  return Bad("data.max_length: of TEXT_FOLDER alone, but data.format is ", v1::Data::Format_Name(data.format()),
             "; leave it out");
}

absl::Status CheckData(v1::Data* data, const Graph& graph) {
  const Shape input = ModelInputShape(graph);
  if (data->cache_dir().size() > kPathBytesMax) {
    return Bad("data.cache_dir: longer than ", kPathBytesMax, " bytes; use a shorter one");
  }
  if (!data->cache_dir().empty() && data->cache_dir()[0] != '/' && !MayNameRoot(data->cache_dir())) {
    return Bad("data.cache_dir: \"", data->cache_dir(),
               "\" is not absolute; give the directory as every worker sees it");
  }
  if (!data->has_prefetch()) data->set_prefetch(kPrefetchDefault);
  if (data->prefetch() < 0 || data->prefetch() > kPrefetchMax) {
    return Bad("data.prefetch: ", data->prefetch(), " is not within 0 .. ", kPrefetchMax, "; use ", kPrefetchDefault,
               ", or 0 for none");
  }
  CAIRN_RETURN_IF_ERROR(CheckMaxLength(*data));
  CAIRN_RETURN_IF_ERROR(CheckTfRecord(*data, input, HasTexts(graph)));
  return CheckAugmentation(*data, input);
}

// ---- loss ----

absl::Status CheckClassWeights(const v1::JobSpec& spec, int64_t outputs) {
  if (spec.class_weight().empty()) return absl::OkStatus();
  const v1::Loss::Kind kind = spec.loss().kind();
  const bool binary = kind == v1::Loss::BINARY_CROSSENTROPY;
  if (!IsCategorical(kind) && !(binary && outputs == 1)) {
    return Bad("class_weight: needs classes, but the loss is ", v1::Loss::Kind_Name(kind),
               binary ? " over several outputs" : "",
               "; leave class_weight out, or use SPARSE_CATEGORICAL_CROSSENTROPY");
  }
  const int64_t classes = binary ? 2 : outputs;
  std::set<int32_t> seen;
  for (int i = 0; i < spec.class_weight_size(); ++i) {
    const v1::ClassWeight& w = spec.class_weight(i);
    if (w.class_id() < 0 || w.class_id() >= classes) {
      return Bad("class_weight[", i, "].class_id: ", w.class_id(), " is not one of the model's classes 0 .. ",
                 classes - 1, "; use one of them");
    }
    if (!seen.insert(w.class_id()).second) {
      return Bad("class_weight[", i, "].class_id: ", w.class_id(), " has a weight already; remove one of them");
    }
    if (!(w.weight() >= 0) || !std::isfinite(w.weight())) {
      return Bad("class_weight[", i, "].weight: ", w.weight(), " is negative or not finite; use a number such as 2");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Shape ExampleShape(const v1::Data& data, const Shape& input_shape) {
  if (data.image_height() == 0 || data.image_width() == 0 || input_shape.size() != 3) return input_shape;
  return {data.image_height(), data.image_width(), input_shape[2]};
}

absl::Status CheckDataPipeline(v1::JobSpec* spec, const Graph& graph) {
  CAIRN_RETURN_IF_ERROR(CheckData(spec->mutable_data(), graph));
  return CheckClassWeights(*spec, graph.output().output.back());
}

absl::Status CheckDataPipelineAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data) {
  if (spec.data().max_length() != 0 && data.format() != v1::Data::TEXT_FOLDER) {
    return Bad("data.max_length: of TEXT_FOLDER alone, but ", data.path(), " is ", v1::Data::Format_Name(data.format()),
               "; leave it out");
  }
  if (spec.data().has_tfrecord() && data.format() != v1::Data::TFRECORD) {
    return Bad("data.tfrecord: only for format TFRECORD, but ", data.path(), " is ",
               v1::Data::Format_Name(data.format()), "; leave it out");
  }
  for (int i = 0; i < spec.class_weight_size(); ++i) {
    if (data.classes() > 0 && spec.class_weight(i).class_id() >= data.classes()) {
      return Bad("class_weight[", i, "].class_id: ", spec.class_weight(i).class_id(), ", but ", data.path(),
                 " has the ", data.classes(), " classes 0 .. ", data.classes() - 1, "; use one of them");
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
