#include "common/model/ready_made/ready_made.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/limits.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

enum class Takes { kAnything, kPictures, kPatches, kSteps };

constexpr int32_t kPatchSide = 16;

struct Entry {
  ReadyMadeInfo info;
  v1::Model (*make)(const std::vector<int32_t>& input_shape, int32_t classes);
  Takes takes;
};

const std::vector<Entry>& Entries() {
  constexpr Takes kAnything = Takes::kAnything, kPictures = Takes::kPictures, kPatches = Takes::kPatches,
                  kSteps = Takes::kSteps;
  static const std::vector<Entry>* const entries = new std::vector<Entry>{
      {{"mlp", "one hidden layer of 128, as in TensorFlow's quickstart", {28, 28, 1}, 10}, MakeMlp, kAnything},
      {{"mnist_cnn", "the CNN of TensorFlow's MirroredStrategy tutorial", {28, 28, 1}, 10}, MakeMnistCnn, kPictures},
      {{"lenet", "LeNet-5", {28, 28, 1}, 10}, MakeLenet, kPictures},
      {{"beans_cnn", "four convolutions with batch normalization (examples/beans)", {128, 128, 3}, 3},
       MakeBeansCnn,
       kPictures},
      {{"resnet18", "torchvision's ResNet-18", {224, 224, 3}, 1000}, MakeResnet18, kPictures},
      {{"resnet34", "torchvision's ResNet-34", {224, 224, 3}, 1000}, MakeResnet34, kPictures},
      {{"resnet50", "keras.applications.ResNet50", {224, 224, 3}, 1000}, MakeResnet50, kPictures},
      {{"tutorial_resnet", "the small residual network of TensorFlow's tutorials", {224, 224, 3}, 3},
       MakeTutorialResnet,
       kPictures},
      {{"mobilenet_v2", "keras.applications.MobileNetV2, alpha 1", {224, 224, 3}, 1000}, MakeMobilenetV2, kPictures},
      {{"vgg16", "keras.applications.VGG16", {224, 224, 3}, 1000}, MakeVgg16, kPictures},
      {{"densenet121", "keras.applications.DenseNet121", {224, 224, 3}, 1000}, MakeDensenet121, kPictures},
      {{"xception", "keras.applications.Xception", {299, 299, 3}, 1000}, MakeXception, kPictures},
      {{"unet", "U-Net with padded convolutions: a class for each pixel", {128, 128, 3}, 2}, MakeUnet, kPictures},
      {{"efficientnet_b0", "keras.applications.EfficientNetB0", {224, 224, 3}, 1000}, MakeEfficientNetB0, kPictures},
      {{"efficientnetv2_s", "keras.applications.EfficientNetV2S", {384, 384, 3}, 1000}, MakeEfficientNetV2S, kPictures},
      {{"convnext_tiny", "keras.applications.ConvNeXtTiny", {224, 224, 3}, 1000}, MakeConvNeXtTiny, kPictures},
      {{"mobilenet_v3_large", "keras.applications.MobileNetV3Large, alpha 1", {224, 224, 3}, 1000},
       MakeMobileNetV3Large,
       kPictures},
      {{"mobilenet_v3_small", "keras.applications.MobileNetV3Small, alpha 1", {224, 224, 3}, 1000},
       MakeMobileNetV3Small,
       kPictures},
      {{"vit_tiny", "the vision transformer ViT-Ti/16", {224, 224, 3}, 1000}, MakeVitTiny, kPatches},
      {{"vit_base", "the vision transformer ViT-B/16", {224, 224, 3}, 1000}, MakeVitBase, kPatches},
      {{"gpt_mini", "a GPT of 6 blocks: the next token at each step; classes: of tokens", {128}, 256},
       MakeGptMini,
       kSteps},
      {{"lstm_text", "two bidirectional LSTMs over token ids below 20,000", {200}, 2}, MakeLstmText, kSteps},
  };
  return *entries;
}

const std::vector<ReadyMadeInfo>& Infos() {
  static const std::vector<ReadyMadeInfo>* const infos = [] {
    auto* const list = new std::vector<ReadyMadeInfo>;
    for (const Entry& entry : Entries()) list->push_back(entry.info);
    return list;
  }();
  return *infos;
}

template <typename... Args>
absl::Status Bad(const char* field, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("model.ready_made.", field, ": ", args...));
}

absl::Status CheckShape(const Entry& entry, const std::vector<int32_t>& shape) {
  const bool any = entry.takes == Takes::kAnything, steps = entry.takes == Takes::kSteps;
  if (any ? shape.size() > 3 : shape.size() != (steps ? 1 : 3)) {
    return Bad("input_shape", shape.size(), " numbers, but ", entry.info.name, " takes ",
               steps ? "[steps]" : "[height, width, channels]", any ? " or [features]" : "",
               "; give it such a shape or leave it out");
  }
  for (const int32_t side : shape) {
    if (side > 0 && side <= kReadyMadeSideMax) continue;
    return Bad("input_shape", side, " is outside 1 .. ", kReadyMadeSideMax, "; use a shape such as [",
               absl::StrJoin(entry.info.input_shape, ", "), "]");
  }
  if (entry.takes == Takes::kPatches && (shape[0] % kPatchSide != 0 || shape[1] % kPatchSide != 0)) {
    return Bad("input_shape", "[", absl::StrJoin(shape, ", "), "], but ", entry.info.name, " cuts pictures into ",
               kPatchSide, "x", kPatchSide, "; use sides that are multiples of ", kPatchSide);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const ReadyMadeInfo> ReadyMadeModels() { return Infos(); }

absl::StatusOr<v1::Model> MakeReadyMade(const v1::ReadyMade& wanted) {
  std::string names;
  for (const Entry& entry : Entries()) {
    const ReadyMadeInfo& info = entry.info;
    if (wanted.name() != info.name) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", info.name);
      continue;
    }
    std::vector<int32_t> shape(wanted.input_shape().begin(), wanted.input_shape().end());
    if (shape.empty()) shape = info.input_shape;
    CAIRN_RETURN_IF_ERROR(CheckShape(entry, shape));
    const int32_t classes = wanted.has_classes() ? wanted.classes() : info.classes;
    if (classes < 2 || classes > kReadyMadeClassesMax) {
      return Bad("classes", wanted.classes(), " is outside 2 .. ", kReadyMadeClassesMax,
                 "; use the number of classes of the data");
    }
    return entry.make(shape, classes);
  }
  if (wanted.name().empty()) return Bad("name", "missing; use one of ", names);
  return Bad("name", "\"", absl::CEscape(wanted.name().substr(0, kModelNameShownBytesMax)),
             "\" is not known; use one of ", names);
}

}  // namespace cairn
