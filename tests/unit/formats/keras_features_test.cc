// Goal: what Keras writes of the layers of features is taken as Keras means it, in both dialects: statistics of a
// Normalization in its config or among the weights, seeds, noise shapes, hard_sigmoid. The numbers are worked out by
// hand from Keras' code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The layer behind the input [28, 28, 1] of a Sequential model.
v1::Layer Read(const std::string& type, const std::string& config) {
  const auto read = ReadKerasModel(Keras2Sequential(KerasLayerText(type, "\"name\": \"l\", " + config)));
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? read->model.layers(1) : v1::Layer();
}

// The same in Keras 3.
absl::StatusOr<KerasModel> ReadKeras3(const std::string& type, const std::string& config) {
  return ReadKerasModel(Keras3Functional(
      Keras3Input("image", "[null, 8, 8, 3]") + ", " + Keras3Node(type, "l", config, Keras3Tensor("image")), "l"));
}

TEST(KerasFeatures, StatisticsOfANormalization) {
  const v1::Normalization plain =
      Read("Normalization", R"("axis": [-1], "mean": null, "variance": null)").normalization();
  EXPECT_THAT(plain.axis(), ElementsAre(-1));
  EXPECT_FALSE(plain.all());
  EXPECT_TRUE(plain.mean().empty());
  for (const char* none : {R"("axis": [])", R"("axis": null)"})
    EXPECT_TRUE(Read("Normalization", none).normalization().all());
  EXPECT_FALSE(Read("Normalization", R"("invert": true)").normalization().all());
  const v1::Normalization given =
      Read("Normalization", R"("axis": -1, "mean": [[[0.5, 1]]], "variance": 2.0, "invert": true)").normalization();
  EXPECT_THAT(given.mean(), ElementsAre(0.5f, 1.0f));
  EXPECT_THAT(given.variance(), ElementsAre(2.0f));
  EXPECT_TRUE(given.invert());
}

// mean, variance and count, in this order, as Keras adds them.
TEST(KerasFeatures, StatisticsAreWeights) {
  const Graph graph = Graph::Build(FromText<v1::Model>("layers { input { shape: [4, 3] } } layers { normalization {} } "
                                                       "layers { flatten {} } layers { dense { units: 2 } }"))
                          .value();
  EXPECT_EQ(graph.parameters(), 3 + 3 + 1 + 12 * 2 + 2);
  EXPECT_EQ(graph.trainable_parameters(), 12 * 2 + 2);
  std::vector<float> space(static_cast<size_t>(graph.space_size()));
  for (size_t i = 0; i < space.size(); ++i) space[i] = static_cast<float>(i);
  const std::string path = (std::filesystem::temp_directory_path() / "keras_features_test.keras").string();
  ASSERT_TRUE(WriteKerasArchive(path, "m", graph, space).ok());
  const auto read = ReadKerasArchiveWeights(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tensors.size(), graph.variables().size());
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const Variable& v = graph.variables()[i];
    EXPECT_EQ(read->tensors[i].name, v.name);
    EXPECT_EQ(read->tensors[i].shape, v.shape);
    EXPECT_EQ(read->tensors[i].data.floats()[0], static_cast<float>(v.offset));
  }
  std::filesystem::remove(path);
}

TEST(KerasFeatures, ScalesOfARescaling) {
  const v1::Rescaling r = Read("Rescaling", R"("scale": [0.5], "offset": [0.25])").rescaling();
  EXPECT_EQ(r.scale(), 0.5f);
  EXPECT_EQ(r.offset(), 0.25f);
  const auto lists = ReadKeras3("Rescaling", R"("scale": [0.5, 2.0, 4.0], "offset": -1.0)");
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_THAT(lists->model.layers(1).rescaling().scales(), ElementsAre(0.5f, 2.0f, 4.0f));
  EXPECT_THAT(lists->model.layers(1).rescaling().offsets(), ElementsAre(-1.0f, -1.0f, -1.0f));
}

TEST(KerasFeatures, SeedsAndNoiseShapes) {
  const v1::Dropout plain = Read("Dropout", R"("rate": 0.5, "noise_shape": null, "seed": null)").dropout();
  EXPECT_FALSE(plain.has_seed());
  const v1::Dropout shaped = Read("Dropout", R"("rate": 0.5, "noise_shape": [null, 1, 28, 1], "seed": 42)").dropout();
  EXPECT_THAT(shaped.noise_shape(), ElementsAre(1, 28, 1));
  EXPECT_EQ(shaped.seed(), 42u);
  EXPECT_EQ(Read("AlphaDropout", R"("rate": 0.5, "seed": {"class_name": "SeedGenerator", "config": {"seed": 7}})")
                .alpha_dropout()
                .seed(),
            7u);
  EXPECT_EQ(Read("GaussianNoise", R"("stddev": 0.5, "seed": 4294967296)").gaussian_noise().seed(), uint64_t{1} << 32);
}

// Keras 2: clip(0.2 x + 0.5, 0, 1). Keras 3: clip(x / 6 + 0.5, 0, 1).
TEST(KerasFeatures, HardSigmoidIsThatOfTheDialect) {
  const v1::ActivationLayer old = Read("Activation", R"("activation": "hard_sigmoid")").activation();
  EXPECT_EQ(old.activation(), v1::HARD_SIGMOID);
  EXPECT_EQ(old.alpha(), 0.2f);
  const auto now = ReadKeras3("Activation", R"("activation": "hard_sigmoid")");
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_EQ(now->model.layers(1).activation().activation(), v1::HARD_SIGMOID);
  EXPECT_FALSE(now->model.layers(1).activation().has_alpha());
  EXPECT_EQ(Read("Dense", R"("units": 2, "activation": "hard_sigmoid")").dense().activation(), v1::HARD_SIGMOID_KERAS2);
  const v1::LSTM lstm =
      Read("LSTM", R"("units": 2, "recurrent_activation": "hard_sigmoid", "activation": "tanh")").lstm();
  EXPECT_EQ(lstm.recurrent_activation(), v1::HARD_SIGMOID_KERAS2);
  EXPECT_EQ(lstm.activation(), v1::TANH);
}

TEST(KerasFeatures, ReluHasItsArguments) {
  const auto of = [](const std::string& config) { return Read("ReLU", config).activation(); };
  EXPECT_EQ(of(R"("max_value": 6.0)").activation(), v1::RELU6);
  EXPECT_EQ(of(R"("max_value": 3.0)").max_value(), 3);
  EXPECT_EQ(of(R"("threshold": 0.5)").threshold(), 0.5f);
  EXPECT_EQ(of(R"("negative_slope": 0.5)").negative_slope(), 0.5f);
}

}  // namespace
}  // namespace cairn
