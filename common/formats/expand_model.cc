#include "common/formats/expand_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/formats/keras_model.h"
#include "common/formats/open_shape.h"
#include "common/model/external_check.h"
#include "common/model/ready_made/ready_made.h"

namespace cairn {
namespace {

// Replaces the model, except for a name that the user set and the settings that refer to layers of the expanded model.
void Replace(v1::Model expanded, v1::Model* model) {
  if (!model->name().empty()) expanded.set_name(model->name());
  *expanded.mutable_trainable_layers() = std::move(*model->mutable_trainable_layers());
  *model = std::move(expanded);
}

}  // namespace

absl::Status ExpandModel(v1::Model* model, v1::Data* data) {
  const int given =
      (model->layers_size() > 0) + model->has_ready_made() + !model->keras_json().empty() + model->has_external();
  if (given > 1) {
    return absl::InvalidArgumentError(
        "model: more than one of layers, ready_made, keras_json and external is given; leave all but one out");
  }
  if (model->has_external()) return ExpandExternal(model);
  if (model->has_ready_made()) {
    CAIRN_ASSIGN_OR_RETURN(v1::Model expanded, MakeReadyMade(model->ready_made()));
    Replace(std::move(expanded), model);
  } else if (!model->keras_json().empty()) {
    absl::StatusOr<KerasModel> read = ReadKerasModel(model->keras_json());
    if (!read.ok()) return Annotate(read.status(), "model.keras_json");
    if (read->data.augmentation_size() > 0) {
      if (data == nullptr) {
        return absl::InvalidArgumentError(
            "model.keras_json: it begins with augmentation, which belongs to the data; give it as data.augmentation");
      }
      *data = std::move(read->data);
    }
    Replace(std::move(read->model), model);
  }
  return absl::OkStatus();
}

absl::Status ExpandJob(v1::JobSpec* spec) {
  CAIRN_RETURN_IF_ERROR(CloseShapeByFields(spec->data(), spec->mutable_model()));
  v1::Data head;
  CAIRN_RETURN_IF_ERROR(ExpandModel(spec->mutable_model(), &head));
  if (head.augmentation().empty()) return absl::OkStatus();
  const v1::Data& data = spec->data();
  if (data.augmentation_size() > 0) {
    return absl::InvalidArgumentError(
        "data.augmentation: the Keras model begins with augmentation of its own; leave one of the two out");
  }
  const bool sized = head.image_height() > 0 && (data.image_height() != 0 || data.image_width() != 0);
  if (sized && (data.image_height() != head.image_height() || data.image_width() != head.image_width())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.image_height: ", data.image_height(), " x ", data.image_width(), ", but the Keras model's input is ",
        head.image_height(), " x ", head.image_width(), "; leave image_height and image_width out"));
  }
  spec->mutable_data()->MergeFrom(head);
  return absl::OkStatus();
}

}  // namespace cairn
