#include "common/model/ready_made/ready_made.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/model/limits.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

struct Entry {
  v1::Model (*make)(const std::vector<int32_t>& input_shape, int32_t classes);
  bool pictures;  // accepts only [height, width, channels]
};

const std::vector<ReadyMadeInfo>& Infos() {
  static const std::vector<ReadyMadeInfo>* const infos = new std::vector<ReadyMadeInfo>{
      {"mlp", "one hidden layer of 128, as in TensorFlow's quickstart", {28, 28, 1}, 10},
      {"mnist_cnn", "the CNN of TensorFlow's MirroredStrategy tutorial", {28, 28, 1}, 10},
      {"lenet", "LeNet-5", {28, 28, 1}, 10},
      {"beans_cnn", "four convolutions with batch normalization (examples/beans)", {128, 128, 3}, 3},
      {"resnet18", "torchvision's ResNet-18", {224, 224, 3}, 1000},
      {"resnet34", "torchvision's ResNet-34", {224, 224, 3}, 1000},
      {"resnet50", "keras.applications.ResNet50", {224, 224, 3}, 1000},
      {"tutorial_resnet", "the small residual network of TensorFlow's tutorials", {224, 224, 3}, 3},
      {"mobilenet_v2", "keras.applications.MobileNetV2, alpha 1", {224, 224, 3}, 1000},
      {"vgg16", "keras.applications.VGG16", {224, 224, 3}, 1000},
      {"densenet121", "keras.applications.DenseNet121", {224, 224, 3}, 1000},
      {"xception", "keras.applications.Xception", {299, 299, 3}, 1000},
      {"unet", "U-Net with padded convolutions: a class for each pixel", {128, 128, 3}, 2},
  };
  return *infos;
}

// In the order of Infos().
constexpr Entry kEntries[] = {
    {MakeMlp, false},        {MakeMnistCnn, true}, {MakeLenet, true},       {MakeBeansCnn, true},
    {MakeResnet18, true},    {MakeResnet34, true}, {MakeResnet50, true},    {MakeTutorialResnet, true},
    {MakeMobilenetV2, true}, {MakeVgg16, true},    {MakeDensenet121, true}, {MakeXception, true},
    {MakeUnet, true},
};

template <typename... Args>
absl::Status Bad(const char* field, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("model.ready_made.", field, ": ", args...));
}

absl::Status CheckShape(const ReadyMadeInfo& info, bool pictures, const std::vector<int32_t>& shape) {
  if (pictures ? shape.size() != 3 : shape.size() > 3) {
    return Bad("input_shape", shape.size(), " numbers, but ", info.name, " takes [height, width, channels]",
               pictures ? "" : " or [features]", "; give it such a shape or leave it out");
  }
  for (const int32_t side : shape) {
    if (side > 0 && side <= kReadyMadeSideMax) continue;
    return Bad("input_shape", side, " is outside 1 .. ", kReadyMadeSideMax, "; use a shape such as [",
               info.input_shape[0], ", ", info.input_shape[1], ", ", info.input_shape[2], "]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const ReadyMadeInfo> ReadyMadeModels() { return Infos(); }

absl::StatusOr<v1::Model> MakeReadyMade(const v1::ReadyMade& wanted) {
  std::string names;
  for (size_t i = 0; i < Infos().size(); ++i) {
    const ReadyMadeInfo& info = Infos()[i];
    if (wanted.name() != info.name) {
      absl::StrAppend(&names, i == 0 ? "" : ", ", info.name);
      continue;
    }
    std::vector<int32_t> shape(wanted.input_shape().begin(), wanted.input_shape().end());
    if (shape.empty()) shape = info.input_shape;
    CAIRN_RETURN_IF_ERROR(CheckShape(info, kEntries[i].pictures, shape));
    const int32_t classes = wanted.has_classes() ? wanted.classes() : info.classes;
    if (classes < 2 || classes > kReadyMadeClassesMax) {
      return Bad("classes", wanted.classes(), " is outside 2 .. ", kReadyMadeClassesMax,
                 "; use the number of classes of the data");
    }
    return kEntries[i].make(shape, classes);
  }
  if (wanted.name().empty()) return Bad("name", "missing; use one of ", names);
  return Bad("name", "\"", absl::CEscape(wanted.name().substr(0, kModelNameShownBytesMax)),
             "\" is not known; use one of ", names);
}

}  // namespace cairn
