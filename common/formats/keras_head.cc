// The head of a model: layers at its input that augment the data.
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/formats/keras_converter.h"

namespace cairn {

absl::StatusOr<std::string> KerasConverter::Augment(const Entry& entry, const KerasCall& call,
                                                    const v1::Augmentation& augmentation, bool moves_pixels_only,
                                                    bool inference) {
  CAIRN_RETURN_IF_ERROR(CheckHead(entry, call, moves_pixels_only));
  bool changes = true;
  if (augmentation.has_random_crop()) {
    CAIRN_ASSIGN_OR_RETURN(changes, Crop(entry, augmentation.random_crop(), inference));
  }
  if (changes) *result_.data.add_augmentation() = augmentation;
  head_keras_ = entry.name;
  return head_;
}

absl::StatusOr<bool> KerasConverter::Crop(const Entry& entry, const v1::RandomCrop& crop, bool inference) {
  const auto bad = [&](const auto&... what) {
    return Bad("layer \"", ShownText(entry.name), "\" (RandomCrop): ", what...);
  };
  if (inference) return bad("it is called with training=false; leave that out, or crop the data before");
  auto& shape = *result_.model.mutable_layers(0)->mutable_input()->mutable_shape();
  if (shape.size() != 3) return bad("its input is not a picture; give it [height, width, channels]");
  if (crop.height() < 1 || crop.width() < 1 || crop.height() > shape[0] || crop.width() > shape[1]) {
    return bad(crop.height(), " x ", crop.width(), " is not part of its input, ", shape[0], " x ", shape[1],
               "; give it a height and a width within that");
  }
  if (crop.height() == shape[0] && crop.width() == shape[1]) return false;
  if (result_.data.image_height() > 0) return bad("a second one that makes pictures smaller; leave one of them out");
  result_.data.set_image_height(shape[0]);
  result_.data.set_image_width(shape[1]);
  shape[0] = crop.height();
  shape[1] = crop.width();
  NoteShape(result_.model.layers(0));
  return true;
}

absl::Status KerasConverter::CheckHead(const Entry& entry, const KerasCall& call, bool moves_pixels_only) const {
  if (head_used_ || call.inputs != std::vector<std::string>{head_}) {
    return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
               "): an augmentation is supported only right after the input; move it there, or use data.augmentation");
  }
  if (rescaled_ && !moves_pixels_only) {
    return Bad(
        "layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
        "): it follows a Rescaling, but augmentation works on the data before that; move it before the Rescaling");
  }
  return absl::OkStatus();
}

absl::Status KerasConverter::CheckNotBeforeAugmentation(const Entry& entry, const std::string& input) const {
  if (result_.data.augmentation().empty() || input != head_ || head_keras_ == head_) return absl::OkStatus();
  return Bad("layer \"", ShownText(entry.name), "\": it takes \"", ShownTensor(input), "\" without \"",
             ShownText(head_keras_), "\"; let every layer take the augmented one");
}

}  // namespace cairn
