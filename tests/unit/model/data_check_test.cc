// Goal: an input pipeline that cannot work is refused at submission, with the sentence that the user sees; what Keras
// allows is allowed.
#include "common/model/data_check.h"

#include <gtest/gtest.h>

#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

v1::JobSpec Job(const std::string& change, const std::string& input = "[8, 8, 3]",
                const std::string& last = "units: 3 activation: SOFTMAX",
                const std::string& loss = "SPARSE_CATEGORICAL_CROSSENTROPY") {
  v1::JobSpec spec = FromText<v1::JobSpec>(
      "model { layers { input { shape: " + input + " } } layers { flatten {} } layers { dense { " + last +
      " } } } data { path: 'pictures' } loss { kind: " + loss + " } optimizer { sgd {} }");
  spec.MergeFrom(FromText<v1::JobSpec>(change));
  return spec;
}

std::string Step(const std::string& step) { return "data { augmentation { " + step + " } }"; }

TEST(DataCheck, WhatKerasAllowsIsAllowed) {
  for (const char* step :
       {"random_flip {}", "random_flip { mode: VERTICAL }", "random_rotation { factor: 0.1 }",
        "random_rotation { factor: [-0.2, 0.3] fill_mode: WRAP }", "random_zoom { height_factor: [-0.3, -0.2] }",
        "random_zoom { height_factor: 0.2 width_factor: 0.1 fill_mode: FILL_CONSTANT fill_value: 9 }",
        "random_translation { height_factor: 0 width_factor: 1 }", "random_crop { height: 8 width: 8 }",
        "random_crop { height: 10 width: 9 padding: 1 }", "random_brightness { factor: [0, 1] }",
        "random_contrast { factor: 0.2 }", "random_contrast { factor: [0.9, 0.1] }", "cutout { size: 4 }"}) {
    const auto job = CheckJob(Job(Step(step)));
    EXPECT_TRUE(job.ok()) << step << ": " << job.status();
  }
  for (const char* size :
       {"image_height: 12 image_width: 9", "image_height: 6 image_width: 6", "image_height: 8 image_width: 8"}) {
    const auto job = CheckJob(
        Job(std::string("data { augmentation { random_flip {} } augmentation { random_crop { height: 6 width: 6 } } "
                        "augmentation { random_crop { height: 8 width: 8 } } ") +
            size + " }"));
    EXPECT_TRUE(job.ok()) << size << ": " << job.status();
  }
  EXPECT_EQ(CheckJob(Job("")).value().spec.data().prefetch(), 2);
  EXPECT_EQ(CheckJob(Job("data { prefetch: 0 }")).value().spec.data().prefetch(), 0);
  EXPECT_TRUE(CheckJob(Job("class_weight { class_id: 2 weight: 0 } class_weight { class_id: 0 weight: 3.5 }")).ok());
  EXPECT_TRUE(CheckJob(Job("class_weight { class_id: 1 weight: 2 }", "4", "units: 1 activation: SIGMOID",
                           "BINARY_CROSSENTROPY"))
                  .ok());
  EXPECT_TRUE(CheckJob(Job("loss { label_smoothing: 0.99 }")).ok());
  EXPECT_TRUE(
      CheckJob(Job("data { tfrecord { shape: [64, 3] input: 'a' label: 'b' } cache_dir: '/tmp' drop_remainder: true }"))
          .ok());
}

TEST(DataCheck, EachWrongFieldIsNamed) {
  struct Case {
    std::string change, message;
  };
  const std::string aug = "data.augmentation[0].";
  const std::vector<Case> cases = {
      {Step(""),
       "data.augmentation[0]: says nothing; name one of random_flip, random_rotation, random_zoom, random_translation, "
       "random_crop, random_shear, random_perspective, random_brightness, random_contrast, random_saturation, "
       "random_hue, random_grayscale, random_color_jitter, random_color_degeneration, random_invert, "
       "random_posterization, random_sharpness, random_gaussian_blur, random_erasing, auto_contrast, equalization, "
       "solarization, rand_augment, aug_mix, random_elastic_transform, cutout, mix_up, cut_mix"},
      {Step("random_shear { x_factor: 1.5 }"), aug + "random_shear.x_factor: 1.5 is outside [-1, 1]; use 0.2, say"},
      {Step("random_shear { fill_value: 1 }"),
       aug + "random_shear.fill_value: only for fill_mode FILL_CONSTANT; leave it out, or set fill_mode"},
      {Step("random_saturation {}"), aug + "random_saturation.factor: missing; use 0.5, say"},
      {Step("random_hue { factor: -0.1 }"), aug + "random_hue.factor: -0.1 is outside [0, 1]; use 0.2, say"},
      {Step("random_hue { factor: [0.5, 0.2] }"),
       aug + "random_hue.factor: its low 0.5 is above its high 0.2; exchange them"},
      {Step("random_grayscale { factor: 2 }"), aug + "random_grayscale.factor: 2 is outside [0, 1]; use 0.5, say"},
      {Step("random_color_jitter {}"),
       aug + "random_color_jitter: has no factor; give brightness_factor, contrast_factor, saturation_factor or "
             "hue_factor"},
      {Step("random_posterization { factor: 9 }"),
       aug + "random_posterization.factor: 9 is outside [1, 8]; use 4, say"},
      {Step("random_posterization { factor: 2.5 }"),
       aug + "random_posterization.factor: 2.5 is not a whole number of bits; use 4, say"},
      {Step("random_gaussian_blur { kernel_size: 4 }"),
       aug + "random_gaussian_blur.kernel_size: 4 is not an odd number within 1 .. 17; use 3, say"},
      {Step("random_gaussian_blur { kernel_size: [3, 3, 3] }"),
       aug + "random_gaussian_blur.kernel_size: more than 2 numbers; use one, or width and height"},
      {Step("random_erasing { fill_value: nan }"), aug + "random_erasing.fill_value: nan is not finite; use 0, say"},
      {Step("random_perspective { scale: 2 }"), aug + "random_perspective.scale: 2 is outside [0, 1]; use 0.3, say"},
      {Step("equalization { bins: 1 }"),
       aug + "equalization.bins: 1 is not within 2 .. 65536; use 256, or leave it out"},
      {Step("solarization { threshold_factor: 2 }"),
       aug + "solarization.threshold_factor: 2 is outside [0, 1]; use 0.5, say"},
      {Step("rand_augment { num_ops: 0 }"), aug + "rand_augment.num_ops: 0 is not within 1 .. 64; use 2, say"},
      {Step("random_flip { mode: 7 }"),
       aug + "random_flip.mode: 7 is not known; use HORIZONTAL, VERTICAL or HORIZONTAL_AND_VERTICAL"},
      {Step("random_rotation {}"), aug + "random_rotation.factor: missing; use 0.1 for a tenth of a turn each way"},
      {Step("random_rotation { factor: 1.5 }"),
       aug + "random_rotation.factor: 1.5 is outside [-1, 1]; use 0.1 for a tenth of a turn each way"},
      {Step("random_rotation { factor: nan }"),
       aug + "random_rotation.factor: nan is outside [-1, 1]; use 0.1 for a tenth of a turn each way"},
      {Step("random_rotation { factor: -0.1 }"), aug + "random_rotation.factor: -0.1 is negative; one number f means "
                                                       "[-f, f]: use 0.1 for a tenth of a turn each way"},
      {Step("random_rotation { factor: [0.1, 0.2, 0.3] }"),
       aug + "random_rotation.factor: 3 numbers; use one, or two: [low, high]"},
      {Step("random_rotation { factor: [0.2, 0.1] }"),
       aug + "random_rotation.factor: its low 0.2 is above its high 0.1; exchange them"},
      {Step("random_rotation { factor: 0.1 fill_mode: 9 }"),
       aug + "random_rotation.fill_mode: 9 is not known; use REFLECT, WRAP, FILL_CONSTANT or NEAREST_PIXEL"},
      {Step("random_rotation { factor: 0.1 fill_value: 3 }"),
       aug + "random_rotation.fill_value: only for fill_mode FILL_CONSTANT; leave it out, or set fill_mode"},
      {Step("random_zoom { width_factor: 0.1 }"), aug + "random_zoom.height_factor: missing; use 0.2, say"},
      {Step("random_zoom { height_factor: -3 }"),
       aug + "random_zoom.height_factor: -3 is outside [-1, 1]; use 0.2, say"},
      {Step("random_translation { height_factor: 0.1 }"),
       aug + "random_translation.width_factor: missing; use 0.1, say"},
      {Step("random_crop { height: 9 width: 4 }"),
       aug + "random_crop.height: 9 is more than the 8 pixels of the picture; use a smaller part, or padding"},
      {Step("random_crop { height: 4 width: 11 padding: 1 }"),
       aug + "random_crop.width: 11 is more than the 10 pixels of the picture with its padding; use a smaller part"},
      {Step("random_crop { height: 4 }"), aug + "random_crop.width: 0 is not positive; use 8, say"},
      {Step("random_crop { height: 4 width: 4 padding: -1 }"),
       aug + "random_crop.padding: -1 is not within 0 .. 16384; use 4, say"},
      {"data { image_height: 12 image_width: 12 augmentation { random_crop { height: 13 width: 8 } } }",
       aug + "random_crop.height: 13 is more than the 12 pixels of the picture; use a smaller part, or padding"},
      {"data { image_height: 12 image_width: 12 augmentation { random_flip {} } }",
       "data.image_height: pictures are resized to 12 x 12, but the model's input is [8,8,3]; make them equal, or "
       "leave image_height and "
       "image_width out"},
      {Step("random_brightness { factor: 2 }"), aug + "random_brightness.factor: 2 is outside [-1, 1]; use 0.2, say"},
      {Step("random_contrast { factor: [-0.1, 0.5] }"),
       aug + "random_contrast.factor: -0.1 is outside [0, 1]; use 0.2, say"},
      {Step("cutout {}"), aug + "cutout.size: 0 is not within 1 .. 16384; use half the picture's side, say"},
      {"data { prefetch: -1 }", "data.prefetch: -1 is not within 0 .. 1024; use 2, or 0 for none"},
      {"data { cache_dir: '" + std::string(5000, 'a') + "' }",
       "data.cache_dir: longer than 4096 bytes; use a shorter one"},
      {"data { cache_dir: 'cache' }",
       "data.cache_dir: \"cache\" is not absolute; give the directory as every worker sees it"},
      {"data { format: CSV tfrecord { input: 'x' } }",
       "data.tfrecord: only for format TFRECORD, not CSV; leave one of them out"},
      {"data { tfrecord { input: 'x' label: 'x' } }",
       "data.tfrecord.label: \"x\" is the input too; name another feature"},
      {"data { tfrecord { encoding: 77 } }",
       "data.tfrecord.encoding: 77 is not known; use JPEG_OR_PNG, RAW_UINT8, RAW_FLOAT32, NUMBERS, TEXT, or leave it "
       "out"},
      {"data { tfrecord { shape: [8, 0] } }",
       "data.tfrecord.shape: [8,0] has a size that is not positive, or too many numbers; use that of one example"},
      {"data { tfrecord { shape: [2147483647, 2147483647, 2147483647] } }",
       "data.tfrecord.shape: [2147483647,2147483647,2147483647] has a size that is not positive, or too many numbers; "
       "use that of one example"},
      {"data { tfrecord { shape: [28, 28] } }",
       "data.tfrecord.shape: [28,28] has 784 numbers, the model's input [8,8,3] has 192; make them equal, or leave "
       "shape out"},
      {"loss { label_smoothing: 1 }", "loss.label_smoothing: 1 is outside [0, 1); use a number such as 0.1"},
      {"loss { label_smoothing: -0.1 }", "loss.label_smoothing: -0.1 is outside [0, 1); use a number such as 0.1"},
      {"class_weight { class_id: 3 weight: 2 }",
       "class_weight[0].class_id: 3 is not one of the model's classes 0 .. 2; use one of them"},
      {"class_weight { class_id: -1 weight: 2 }",
       "class_weight[0].class_id: -1 is not one of the model's classes 0 .. 2; use one of them"},
      {"class_weight { class_id: 1 weight: 2 } class_weight { class_id: 1 weight: 3 }",
       "class_weight[1].class_id: 1 has a weight already; remove one of them"},
      {"class_weight { class_id: 1 weight: -2 }",
       "class_weight[0].weight: -2 is negative or not finite; use a number such as 2"},
      {"class_weight { class_id: 1 weight: inf }",
       "class_weight[0].weight: inf is negative or not finite; use a number such as 2"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.change);
    const absl::Status status = CheckJob(Job(c.change)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), c.message);
  }
}

TEST(DataCheck, WhatDependsOnModelAndLoss) {
  EXPECT_EQ(CheckJob(Job(Step("random_flip {}"), "4")).status().message(),
            "data.augmentation: for pictures, but the model's input is [4]; leave it out, or make the input [height, "
            "width, channels]");
  EXPECT_EQ(CheckJob(Job("loss { label_smoothing: 0.1 }", "4", "units: 1", "MEAN_SQUARED_ERROR")).status().message(),
            "loss.label_smoothing: only for cross-entropies, not MEAN_SQUARED_ERROR; leave it out");
  EXPECT_EQ(
      CheckJob(Job("class_weight { class_id: 0 weight: 2 }", "4", "units: 1", "MEAN_SQUARED_ERROR")).status().message(),
      "class_weight: needs classes, but the loss is MEAN_SQUARED_ERROR; leave class_weight out, or use "
      "SPARSE_CATEGORICAL_CROSSENTROPY");
  EXPECT_EQ(CheckJob(Job("class_weight { class_id: 2 weight: 2 }", "4", "units: 1 activation: SIGMOID",
                         "BINARY_CROSSENTROPY"))
                .status()
                .message(),
            "class_weight[0].class_id: 2 is not one of the model's classes 0 .. 1; use one of them");
  std::string many;
  for (int i = 0; i < 65; ++i) many += "augmentation { random_flip {} } ";
  EXPECT_EQ(CheckJob(Job("data { " + many + "}")).status().message(),
            "data.augmentation: 65 steps; at most 64 are allowed");
}

TEST(DataCheck, AgainstTheData) {
  const v1::DataInfo idx =
      FromText<v1::DataInfo>("path: 'pictures' format: IDX train_examples: 100 example_shape: [8, 8, 3] classes: 2");
  const auto check = [&](const std::string& change) {
    return std::string(CheckJobAgainstData(CheckJob(Job(change)).value(), idx).message());
  };
  EXPECT_EQ(check(""), "");
  EXPECT_EQ(check("class_weight { class_id: 2 weight: 2 }"),
            "class_weight[0].class_id: 2, but pictures has the 2 classes 0 .. 1; use one of them");
  EXPECT_EQ(check("data { tfrecord { input: 'x' } }"),
            "data.tfrecord: only for format TFRECORD, but pictures is IDX; leave it out");
  EXPECT_EQ(check("data { drop_remainder: true } steps_per_epoch: 1000"), "");
  v1::DataInfo huge = idx;
  huge.set_train_examples(uint64_t{1} << 40);
  EXPECT_EQ(std::string(CheckJobAgainstData(CheckJob(Job("epochs: 2147483647 batch_size: 1")).value(), huge).message()),
            "epochs: 2147483647 of 1099511627776 steps are more than can be counted; use fewer");
}

}  // namespace
}  // namespace cairn
