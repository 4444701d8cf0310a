// Checks data.augmentation: the numbers of each step, and how the picture's size changes.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/data_check.h"
#include "common/model/limits.h"
#include "common/model/mixed_labels.h"

namespace cairn {
namespace {

using Factor = google::protobuf::RepeatedField<float>;

// `field`: the full name, data.augmentation[0].random_zoom.height_factor.
absl::Status CheckFactor(const std::string& field, const Factor& factor, float low, float high, bool rising,
                         const char* example) {
  if (factor.empty()) return Bad(field, ": missing; use ", example);
  if (factor.size() > 2) return Bad(field, ": ", factor.size(), " numbers; use one, or two: [low, high]");
  for (float f : factor) {
    if (!(f >= low && f <= high)) return Bad(field, ": ", f, " is outside [", low, ", ", high, "]; use ", example);
  }
  if (factor.size() == 1 && factor[0] < 0) {
    return Bad(field, ": ", factor[0], " is negative; one number f means [-f, f]: use ", example);
  }
  if (rising && factor.size() == 2 && factor[0] > factor[1]) {
    return Bad(field, ": its low ", factor[0], " is above its high ", factor[1], "; exchange them");
  }
  return absl::OkStatus();
}

absl::Status CheckFill(const std::string& step, v1::FillMode mode, float value) {
  if (!v1::FillMode_IsValid(mode)) {
    return Bad(step, ".fill_mode: ", static_cast<int>(mode),
               " is not known; use REFLECT, WRAP, FILL_CONSTANT or NEAREST_PIXEL");
  }
  if (!std::isfinite(value)) return Bad(step, ".fill_value: ", value, " is not finite; use 0, say");
  if (value != 0 && mode != v1::FILL_CONSTANT) {
    return Bad(step, ".fill_value: only for fill_mode FILL_CONSTANT; leave it out, or set fill_mode");
  }
  return absl::OkStatus();
}

absl::Status CheckCrop(const std::string& step, const v1::RandomCrop& crop, const Shape& shape) {
  if (crop.padding() < 0 || crop.padding() > kImageSideMax) {
    return Bad(step, ".padding: ", crop.padding(), " is not within 0 .. ", kImageSideMax, "; use 4, say");
  }
  const struct {
    const char* name;
    int64_t size, side;
  } sides[] = {{".height", crop.height(), shape[0]}, {".width", crop.width(), shape[1]}};
  for (const auto& side : sides) {
    const int64_t padded = side.side + 2 * crop.padding();
    if (side.size < 1) return Bad(step, side.name, ": ", side.size, " is not positive; use ", side.side, ", say");
    if (side.size > padded) {
      return Bad(step, side.name, ": ", side.size, " is more than the ", padded, " pixels of the picture",
                 crop.padding() > 0 ? " with its padding" : "", "; use a smaller part",
                 crop.padding() > 0 ? "" : ", or padding");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptional(const std::string& field, const Factor& factor, float low, float high, const char* example) {
  return factor.empty() ? absl::OkStatus() : CheckFactor(field, factor, low, high, true, example);
}

// For steps that are defined only for red, green and blue.
absl::Status NeedsColors(const std::string& step, const Shape& shape) {
  if (shape[2] == 3) return absl::OkStatus();
  return Bad(step, ": for pictures of 3 channels, but these have ", shape[2], "; leave it out");
}

absl::Status CheckNumber(const std::string& field, float value, float low, float high, const char* example) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, ": ", value, " is outside [", low, ", ", high, "]; use ", example);
}

// Of a Beta or a Dirichlet distribution.
absl::Status CheckAlpha(const std::string& step, bool given, float alpha, const char* example) {
  constexpr float kMost = 100;
  if (!given || (alpha > 0 && alpha <= kMost)) return absl::OkStatus();
  return Bad(step, ".alpha: ", alpha, " is outside (0, ", kMost, "]; use ", example);
}

absl::Status CheckPosterization(const std::string& field, const Factor& factor) {
  CAIRN_RETURN_IF_ERROR(CheckFactor(field, factor, 1, 8, true, "4, say"));
  for (const float bits : factor) {
    if (bits != std::floor(bits)) return Bad(field, ": ", bits, " is not a whole number of bits; use 4, say");
  }
  return absl::OkStatus();
}

absl::Status CheckBlur(const std::string& step, const v1::RandomGaussianBlur& blur, const Shape& shape) {
  CAIRN_RETURN_IF_ERROR(CheckNumber(step + ".factor", blur.factor(), 0, 1, "1, say"));
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".sigma", blur.sigma(), 0, 1, "1, say"));
  if (blur.kernel_size_size() > 2) return Bad(step, ".kernel_size: more than 2 numbers; use one, or width and height");
  const int64_t most = 2 * std::max(shape[0], shape[1]) + 1;
  for (const int32_t size : blur.kernel_size()) {
    if (size < 1 || size % 2 == 0 || size > most) {
      return Bad(step, ".kernel_size: ", size, " is not an odd number within 1 .. ", most, "; use 3, say");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckErasing(const std::string& step, const v1::RandomErasing& erasing) {
  CAIRN_RETURN_IF_ERROR(CheckNumber(step + ".factor", erasing.factor(), 0, 1, "1, say"));
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".scale", erasing.scale(), 0, 1, "[0.02, 0.33], say"));
  if (std::isfinite(erasing.fill_value())) return absl::OkStatus();
  return Bad(step, ".fill_value: ", erasing.fill_value(), " is not finite; use 0, say");
}

absl::Status CheckPerspective(const std::string& step, const v1::RandomPerspective& perspective) {
  CAIRN_RETURN_IF_ERROR(CheckNumber(step + ".factor", perspective.factor(), 0, 1, "1, say"));
  if (!std::isfinite(perspective.fill_value())) {
    return Bad(step, ".fill_value: ", perspective.fill_value(), " is not finite; use 0, say");
  }
  return CheckNumber(step + ".scale", perspective.has_scale() ? perspective.scale() : 1, 0, 1, "0.3, say");
}

absl::Status CheckJitter(const std::string& step, const v1::RandomColorJitter& jitter, const Shape& shape) {
  if (jitter.brightness_factor().empty() && jitter.contrast_factor().empty() && jitter.saturation_factor().empty() &&
      jitter.hue_factor().empty()) {
    return Bad(step, ": has no factor; give brightness_factor, contrast_factor, saturation_factor or hue_factor");
  }
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".brightness_factor", jitter.brightness_factor(), -1, 1, "0.2, say"));
  if (!jitter.contrast_factor().empty()) {
    CAIRN_RETURN_IF_ERROR(CheckFactor(step + ".contrast_factor", jitter.contrast_factor(), 0, 1, false, "0.2, say"));
  }
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".saturation_factor", jitter.saturation_factor(), -1, 1, "0.5, say"));
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".hue_factor", jitter.hue_factor(), 0, 1, "0.2, say"));
  const bool colors = !jitter.saturation_factor().empty() || !jitter.hue_factor().empty();
  return colors ? NeedsColors(step, shape) : absl::OkStatus();
}

absl::Status CheckRandAugment(const std::string& step, const v1::RandAugment& augment) {
  if (augment.has_num_ops() && (augment.num_ops() < 1 || augment.num_ops() > kAugmentationsMax)) {
    return Bad(step, ".num_ops: ", augment.num_ops(), " is not within 1 .. ", kAugmentationsMax, "; use 2, say");
  }
  return CheckNumber(step + ".factor", augment.factor(), 0, 1, "0.5, say");
}

absl::Status CheckAugMix(const std::string& step, const v1::AugMix& mix) {
  const std::pair<const char*, int> counts[] = {{".num_chains", mix.has_num_chains() ? mix.num_chains() : 3},
                                                {".chain_depth", mix.has_chain_depth() ? mix.chain_depth() : 3}};
  for (const auto& [name, count] : counts) {
    if (count >= 1 && count <= kAugmentationsMax) continue;
    return Bad(step, name, ": ", count, " is not within 1 .. ", kAugmentationsMax, "; use 3, say");
  }
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".factor", mix.factor(), 0, 1, "0.3, say"));
  return CheckAlpha(step, mix.has_alpha(), mix.alpha(), "1, say");
}

absl::Status CheckElastic(const std::string& step, const v1::RandomElasticTransform& elastic) {
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".factor", elastic.factor(), 0, 1, "1, say"));
  CAIRN_RETURN_IF_ERROR(CheckOptional(step + ".scale", elastic.scale(), 0, 1, "1, say"));
  return CheckFill(step, elastic.fill_mode(), elastic.fill_value());
}

// The steps that are made of others, or mix examples.
absl::Status CheckMixes(const std::string& where, const v1::Augmentation& step) {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandAugment: return CheckRandAugment(where + ".rand_augment", step.rand_augment());
    case v1::Augmentation::kMixUp:
      return CheckAlpha(where + ".mix_up", step.mix_up().has_alpha(), step.mix_up().alpha(), "0.2, say");
    case v1::Augmentation::kCutMix:
      return CheckOptional(where + ".cut_mix.factor", step.cut_mix().factor(), 0, 1, "1, say");
    case v1::Augmentation::kAugMix: return CheckAugMix(where + ".aug_mix", step.aug_mix());
    case v1::Augmentation::kRandomElasticTransform:
      return CheckElastic(where + ".random_elastic_transform", step.random_elastic_transform());
    default: break;
  }
  return Bad(where,
             ": says nothing; name one of random_flip, random_rotation, random_zoom, random_translation, random_crop, "
             "random_shear, random_perspective, random_brightness, random_contrast, random_saturation, random_hue, "
             "random_grayscale, random_color_jitter, random_color_degeneration, random_invert, random_posterization, "
             "random_sharpness, random_gaussian_blur, random_erasing, auto_contrast, equalization, solarization, "
             "rand_augment, aug_mix, random_elastic_transform, cutout, mix_up, cut_mix");
}

absl::Status CheckColors(const std::string& where, const v1::Augmentation& step, const Shape& shape) {
  const auto named = [&](const char* name) { return absl::StrCat(where, ".", name); };
  const auto factor = [&](const char* name) { return absl::StrCat(where, ".", name, ".factor"); };
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomSaturation:
      CAIRN_RETURN_IF_ERROR(NeedsColors(named("random_saturation"), shape));
      return CheckFactor(factor("random_saturation"), step.random_saturation().factor(), -1, 1, true, "0.5, say");
    case v1::Augmentation::kRandomHue:
      CAIRN_RETURN_IF_ERROR(NeedsColors(named("random_hue"), shape));
      return CheckFactor(factor("random_hue"), step.random_hue().factor(), 0, 1, true, "0.2, say");
    case v1::Augmentation::kRandomGrayscale:
      CAIRN_RETURN_IF_ERROR(NeedsColors(named("random_grayscale"), shape));
      return CheckNumber(factor("random_grayscale"), step.random_grayscale().factor(), 0, 1, "0.5, say");
    case v1::Augmentation::kRandomColorJitter:
      return CheckJitter(named("random_color_jitter"), step.random_color_jitter(), shape);
    case v1::Augmentation::kRandomColorDegeneration:
      CAIRN_RETURN_IF_ERROR(NeedsColors(named("random_color_degeneration"), shape));
      return CheckFactor(factor("random_color_degeneration"), step.random_color_degeneration().factor(), -1, 1, true,
                         "0.5, say");
    case v1::Augmentation::kRandomInvert:
      return CheckNumber(factor("random_invert"), step.random_invert().factor(), 0, 1, "0.5, say");
    case v1::Augmentation::kRandomPosterization:
      return CheckPosterization(factor("random_posterization"), step.random_posterization().factor());
    case v1::Augmentation::kRandomSharpness:
      return CheckFactor(factor("random_sharpness"), step.random_sharpness().factor(), 0, 1, true, "0.5, say");
    case v1::Augmentation::kRandomGaussianBlur:
      return CheckBlur(named("random_gaussian_blur"), step.random_gaussian_blur(), shape);
    case v1::Augmentation::kRandomErasing: return CheckErasing(named("random_erasing"), step.random_erasing());
    case v1::Augmentation::kRandomPerspective:
      return CheckPerspective(named("random_perspective"), step.random_perspective());
    case v1::Augmentation::kAutoContrast: return absl::OkStatus();
    case v1::Augmentation::kEqualization: {
      const int bins = step.equalization().has_bins() ? step.equalization().bins() : 256;
      if (bins >= 2 && bins <= kEqualizationBinsMax) return absl::OkStatus();
      return Bad(named("equalization"), ".bins: ", bins, " is not within 2 .. ", kEqualizationBinsMax,
                 "; use 256, or leave it out");
    }
    case v1::Augmentation::kSolarization: {
      const v1::Solarization& s = step.solarization();
      CAIRN_RETURN_IF_ERROR(
          CheckOptional(named("solarization.addition_factor"), s.addition_factor(), 0, 1, "0.2, say"));
      return CheckOptional(named("solarization.threshold_factor"), s.threshold_factor(), 0, 1, "0.5, say");
    }
    default: return CheckMixes(where, step);
  }
}

absl::Status CheckStep(const std::string& where, const v1::Augmentation& step, const Shape& shape) {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomFlip:
      if (v1::RandomFlip::Mode_IsValid(step.random_flip().mode())) return absl::OkStatus();
      return Bad(where, ".random_flip.mode: ", static_cast<int>(step.random_flip().mode()),
                 " is not known; use HORIZONTAL, VERTICAL or HORIZONTAL_AND_VERTICAL");
    case v1::Augmentation::kRandomRotation: {
      const auto& s = step.random_rotation();
      const std::string name = where + ".random_rotation";
      CAIRN_RETURN_IF_ERROR(
          CheckFactor(name + ".factor", s.factor(), -1, 1, true, "0.1 for a tenth of a turn each way"));
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    case v1::Augmentation::kRandomZoom: {
      const auto& s = step.random_zoom();
      const std::string name = where + ".random_zoom";
      CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".height_factor", s.height_factor(), -1, 1, true, "0.2, say"));
      if (!s.width_factor().empty()) {
        CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".width_factor", s.width_factor(), -1, 1, true, "0.2, say"));
      }
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    case v1::Augmentation::kRandomTranslation: {
      const auto& s = step.random_translation();
      const std::string name = where + ".random_translation";
      CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".height_factor", s.height_factor(), -1, 1, true, "0.1, say"));
      CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".width_factor", s.width_factor(), -1, 1, true, "0.1, say"));
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    case v1::Augmentation::kRandomCrop: return CheckCrop(where + ".random_crop", step.random_crop(), shape);
    case v1::Augmentation::kRandomBrightness:
      return CheckFactor(where + ".random_brightness.factor", step.random_brightness().factor(), -1, 1, true,
                         "0.2, say");
    case v1::Augmentation::kRandomContrast:
      return CheckFactor(where + ".random_contrast.factor", step.random_contrast().factor(), 0, 1, false, "0.2, say");
    case v1::Augmentation::kCutout:
      if (step.cutout().size() < 1 || step.cutout().size() > kImageSideMax) {
        return Bad(where, ".cutout.size: ", step.cutout().size(), " is not within 1 .. ", kImageSideMax,
                   "; use half the picture's side, say");
      }
      if (!std::isfinite(step.cutout().fill_value())) return Bad(where, ".cutout.fill_value: not finite; use 0, say");
      return absl::OkStatus();
    case v1::Augmentation::kRandomShear: {
      const auto& s = step.random_shear();
      const std::string name = where + ".random_shear";
      CAIRN_RETURN_IF_ERROR(CheckOptional(name + ".x_factor", s.x_factor(), -1, 1, "0.2, say"));
      CAIRN_RETURN_IF_ERROR(CheckOptional(name + ".y_factor", s.y_factor(), -1, 1, "0.2, say"));
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    default: break;
  }
  return CheckColors(where, step, shape);
}

}  // namespace

absl::Status CheckAugmentation(const v1::Data& data, const Shape& input_shape) {
  if (data.augmentation().empty()) return absl::OkStatus();
  if (data.augmentation_size() > kAugmentationsMax) {
    return Bad("data.augmentation: ", data.augmentation_size(), " steps; at most ", kAugmentationsMax, " are allowed");
  }
  if (input_shape.size() != 3) {
    return Bad("data.augmentation: for pictures, but the model's input is ", ToString(input_shape),
               "; leave it out, or make the input [height, width, channels]");
  }
  Shape shape = ExampleShape(data, input_shape);
  for (int i = 0; i < data.augmentation_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckStep(absl::StrCat("data.augmentation[", i, "]"), data.augmentation(i), shape));
    if (data.augmentation(i).has_random_crop()) shape = input_shape;
    if (i == 0 || IsMix(data.augmentation(i)) || !IsMix(data.augmentation(i - 1))) continue;
    return Bad("data.augmentation[", i, "]: behind ", data.augmentation(i - 1).has_mix_up() ? "mix_up" : "cut_mix",
               ", which mixes whole examples at the end; put it before");
  }
  if (shape == input_shape) return absl::OkStatus();
  return Bad("data.image_height: pictures are resized to ", ToString(shape), ", but the model's input is ",
             ToString(input_shape), "; make them equal, or make one of the other by a random_crop");
}

}  // namespace cairn
