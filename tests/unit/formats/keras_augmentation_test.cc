// Goal: the layers of Keras that change pictures become the steps of their names, with every field of their configs;
// and what descriptions of Keras have beside layers: JSON in JSON, policies of mixed precision.
#include "common/formats/keras_augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/check.h"
#include "common/formats/expand_model.h"
#include "common/formats/keras_model.h"
#include "common/model/graph.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;

KerasModel Read(const std::string& json) {
  absl::StatusOr<KerasModel> model = ReadKerasModel(json);
  CAIRN_CHECK(model.ok(), std::string(model.status().message()));
  return *std::move(model);
}

// Each class of Keras that changes pictures becomes the step of its name, with the fields of its config.
TEST(KerasAugmentation, ReadsEveryAugmentation) {
  struct Case {
    const char *type, *config, *step;
  };
  const std::string range = R"("value_range": [0, 255], )";
  const Case cases[] = {
      {"RandomShear", R"("x_factor": [-0.2, 0.2], "y_factor": 0.1, "fill_mode": "constant", "fill_value": 3)",
       "random_shear { x_factor: [-0.2, 0.2] y_factor: 0.1 fill_mode: FILL_CONSTANT fill_value: 3 }"},
      {"RandomPerspective", R"("factor": [0, 1], "scale": 0.5, "interpolation": "nearest", "fill_value": 2)",
       "random_perspective { factor: 0.5 scale: 0.5 nearest: true fill_value: 2 }"},
      {"RandomSaturation", R"("factor": [0.4, 0.6])", "random_saturation { factor: [0.4, 0.6] }"},
      {"RandomHue", R"("factor": 0.25)", "random_hue { factor: 0.25 }"},
      {"RandomGrayscale", R"("factor": 0.25)", "random_grayscale { factor: 0.25 }"},
      {"RandomColorJitter", R"("brightness_factor": 0.1, "contrast_factor": null, "hue_factor": [0, 0.2])",
       "random_color_jitter { brightness_factor: 0.1 hue_factor: [0, 0.2] }"},
      {"RandomColorDegeneration", R"("factor": [-0.5, 0.5])", "random_color_degeneration { factor: [-0.5, 0.5] }"},
      {"RandomInvert", R"("factor": [0, 1])", "random_invert { factor: 0.5 }"},
      {"RandomPosterization", R"("factor": [1, 4])", "random_posterization { factor: [1, 4] }"},
      {"RandomSharpness", R"("factor": 0.5)", "random_sharpness { factor: 0.5 }"},
      {"RandomGaussianBlur", R"("factor": 1, "kernel_size": [3, 5], "sigma": [0, 1])",
       "random_gaussian_blur { factor: 0.5 kernel_size: [3, 5] sigma: [0, 1] }"},
      {"RandomErasing", R"("factor": 1, "scale": [0.02, 0.33], "fill_value": 3)",
       "random_erasing { factor: 0.5 scale: [0.02, 0.33] fill_value: 3 }"},
      {"Equalization", R"("bins": 64)", "equalization { bins: 64 }"},
      {"Solarization", R"("addition_factor": [0, 0.1], "threshold_factor": 0.5)",
       "solarization { addition_factor: [0, 0.1] threshold_factor: 0.5 }"},
      {"RandAugment", R"("num_ops": 3, "factor": [0, 0.5], "interpolation": "bilinear")",
       "rand_augment { num_ops: 3 factor: 0.5 }"},
      {"AugMix", R"("num_chains": 2, "chain_depth": 4, "factor": [0.1, 0.3], "alpha": 0.5, "all_ops": false)",
       "aug_mix { num_chains: 2 chain_depth: 4 factor: [0.1, 0.3] alpha: 0.5 all_ops: false }"},
      {"RandomElasticTransform",
       R"("factor": [0, 1], "scale": 0.5, "interpolation": "nearest", "fill_mode": "wrap", "fill_value": 0)",
       "random_elastic_transform { factor: [0, 1] scale: 0.5 nearest: true fill_mode: WRAP }"},
  };
  const std::set<std::string> without_range = {"RandomShear", "RandomPerspective", "RandomGrayscale"};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.type);
    const auto model = [&](const std::string& more) {
      return absl::StrCat(
          R"({"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [)",
          Keras3Input("image", "[null, 8, 8, 3]"), ",",
          Keras3Layer(c.type, "step",
                      absl::StrCat(more, R"("seed": null, "data_format": "channels_last", )", c.config)),
          ",", Keras3Layer("Flatten", "f", ""), "]}}");
    };
    const KerasModel read = Read(model(without_range.contains(c.type) ? "" : range));
    ASSERT_EQ(read.data.augmentation_size(), 1);
    EXPECT_EQ(read.data.augmentation(0).ShortDebugString(), FromText<v1::Augmentation>(c.step).ShortDebugString());
    EXPECT_FALSE(ReadKerasModel(model(R"("value_range": [0, 1], )")).ok());
  }
  const std::string auto_contrast = Keras2Sequential(KerasLayerText("AutoContrast", R"("name": "a")"));
  EXPECT_EQ(ReadKerasModel(auto_contrast).status().message(),
            "layer \"a\" (AutoContrast): it changes pictures in evaluation and prediction too; do it when the data "
            "is made, or let data.augmentation do it in training only");
  const std::string mix_up = Keras2Sequential(KerasLayerText("MixUp", R"("name": "a")"));
  EXPECT_EQ(
      ReadKerasModel(mix_up).status().message(),
      "layer \"a\" (MixUp): it mixes labels too, which a layer of a model cannot; leave it out, and let the job's "
      "data.augmentation have a mix_up");
}

// json.dump(model.to_json(), file) writes a text in quotes.
TEST(KerasModel, ReadsJsonInJson) {
  const std::string json = Keras2Sequential(KerasLayerText("Flatten", R"("name": "f")"));
  const std::string quoted = Json(json).dump();
  EXPECT_EQ(Read(quoted).model.DebugString(), Read(json).model.DebugString());
  EXPECT_FALSE(ReadKerasModel(Json(quoted).dump()).ok()) << "once is enough";
}

// A mixed policy's variables are float32; layers of one model may have several.
TEST(KerasModel, ReadsMixedPolicies) {
  const char* const policies[] = {
      R"("mixed_float16")",
      R"("mixed_bfloat16")",
      R"("float32")",
      "null",
      R"({"class_name": "Policy", "config": {"name": "mixed_float16"}})",
      R"({"module": "keras", "class_name": "DTypePolicy", "config": {"name": "mixed_bfloat16"}, "registered_name": null})"};
  for (const char* policy : policies) {
    const std::string json = Keras2Sequential(
        absl::StrCat(KerasLayerText("Flatten", R"("name": "f", "dtype": "float32")"), ",",
                     KerasLayerText("Dense", absl::StrCat(R"("name": "d", "units": 2, "dtype": )", policy))));
    EXPECT_EQ(Read(json).model.layers_size(), 3) << policy;
  }
}

// What is random at the head does nothing then.
TEST(KerasAugmentation, LeavesOutAugmentationThatIsCalledAsInInference) {
  const KerasModel read = Read(
      Keras3Functional(absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",",
                                    Keras3Node("RandomFlip", "flip", "", Keras3Tensor("image"), R"("training": false)"),
                                    ",", Keras3Node("Flatten", "flat", "", Keras3Tensor("flip")), ",",
                                    Keras3Node("Dense", "out", R"("units": 2)", Keras3Tensor("flat"))),
                       "out"));
  EXPECT_EQ(read.data.augmentation_size(), 0);
  EXPECT_THAT(read.model.layers(1).inputs(), ElementsAre("image"));
}

TEST(KerasAugmentation, ARandomCropMakesTheModelsInputOfTheExamples) {
  const std::string json =
      absl::StrCat(R"({"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [)",
                   Keras3Input("image", "[null, 36, 34, 3]"), ",", Keras3Layer("RandomFlip", "flip", ""), ",",
                   Keras3Layer("RandomCrop", "whole", R"("height": 36, "width": 34)"), ",",
                   Keras3Layer("RandomCrop", "crop", R"("height": 32, "width": 30, "seed": 1)"), ",",
                   Keras3Layer("RandomCrop", "same", R"("height": 32, "width": 30)"), ",",
                   Keras3Layer("Rescaling", "scale", R"("scale": 0.5, "offset": 0)"), ",",
                   Keras3Layer("Flatten", "f", ""), ",", Keras3Layer("Dense", "out", R"("units": 2)"), "]}}");
  v1::JobSpec spec;
  spec.mutable_model()->set_keras_json(json);
  ASSERT_TRUE(ExpandJob(&spec).ok());
  EXPECT_THAT(spec.model().layers(0).input().shape(), ElementsAre(32, 30, 3));
  EXPECT_EQ(Graph::Build(spec.model())->parameters(), 32 * 30 * 3 * 2 + 2);
  EXPECT_EQ(spec.data().image_height(), 36);
  EXPECT_EQ(spec.data().image_width(), 34);
  EXPECT_EQ(spec.data().augmentation_size(), 2);
}

}  // namespace
}  // namespace cairn
