// Goal: a SpectralNormalization comes in from Keras' files with the layer within it and goes out again; its weights lie
// where Keras has them: the vector at the wrapper, the kernel at the layer within.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/formats/hdf5_file.h"
#include "common/formats/plain_file.h"
#include "tests/unit/formats/keras_operation_text.h"

namespace cairn {
namespace {

using testing::HasSubstr;

std::string Wrapped(const std::string& type, const std::string& config, const std::string& more = "") {
  return absl::StrCat(R"("layer": {"module": "keras.layers", "class_name": ")", type, R"(", "config": {)", config,
                      R"(}, "registered_name": null})", more);
}

std::string Model(const std::string& config) {
  return ModelOf("6, 6, 3", {Keras3Node("SpectralNormalization", "s", config, Tensor("image"))}, "s");
}

TEST(KerasSpectral, ComesInAndGoesOut) {
  const std::string conv =
      Wrapped("Conv2D", R"("name": "c", "filters": 4, "kernel_size": [3, 3], "activation": "relu")",
              R"(, "power_iterations": 2)");
  const Graph graph = ReadGraph(Model(conv));
  const v1::SpectralNormalization& layer = graph.output().layer.spectral_normalization();
  EXPECT_EQ(layer.power_iterations(), 2);
  EXPECT_EQ(layer.layer().conv2d().filters(), 4);
  EXPECT_EQ(graph.output().activation, v1::RELU);
  ASSERT_EQ(graph.variables().size(), 3u);
  EXPECT_EQ(graph.variables()[0].name, "s/c/kernel");
  EXPECT_EQ(graph.variables()[2].name, "s/vector_u");
  ExpectRoundTrip(graph);
  ExpectRoundTrip(ReadGraph(Model(Wrapped("Dense", R"("name": "d", "units": 5, "use_bias": false)"))));
  ExpectRoundTrip(ReadGraph(Model(Wrapped("Conv2DTranspose", R"("name": "t", "filters": 2, "kernel_size": 2)"))));
  EXPECT_FALSE(ReadGraph(Model(Wrapped("Dense", R"("name": "d", "units": 5, "trainable": false)"))).output().trainable);
}

TEST(KerasSpectral, WeightsLieWhereKerasHasThem) {
  const std::string json = Model(Wrapped("Dense", R"("name": "d", "units": 5)"));
  EXPECT_EQ(ReadKerasModel(json)->weight_paths[1], "layers/spectral_normalization");
  const Graph graph = ReadGraph(json);
  std::vector<float> space(static_cast<size_t>(graph.space_size()), 0.0f);
  std::map<std::string, std::vector<float>> expected;
  for (const Variable& v : graph.variables()) {
    for (int64_t i = 0; i < v.size; ++i) {
      space[static_cast<size_t>(v.offset + i)] = static_cast<float>(v.offset + i) * 0.5f;
      expected[v.name].push_back(static_cast<float>(v.offset + i) * 0.5f);
    }
  }
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "keras_spectral";
  std::filesystem::create_directories(dir);
  const std::string path = dir / "m.weights.h5", archive = dir / "m.keras";
  ASSERT_TRUE(WriteKerasWeightsFile(path, graph, space).ok());
  const absl::StatusOr<Buffer> counts =
      ReadHdf5(ReadFileBytes(path).value(), "m.weights.h5", 2,
               [](const Hdf5Reader& reader, absl::Span<float> out) -> absl::Status {
                 out[0] = static_cast<float>(reader.CountIn("layers/spectral_normalization/vars").value());
                 out[1] = static_cast<float>(reader.CountIn("layers/spectral_normalization/layer/vars").value());
                 return absl::OkStatus();
               });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->floats()[0], 1) << "vector_u";
  EXPECT_EQ(counts->floats()[1], 2) << "kernel and bias";
  ASSERT_TRUE(WriteKerasArchive(archive, "net", graph, space).ok());
  for (const absl::StatusOr<SafetensorsFile>& weights :
       {ReadKerasWeightsFile(path, graph), ReadKerasArchiveWeights(archive)}) {
    ASSERT_TRUE(weights.ok()) << weights.status();
    ASSERT_EQ(weights->tensors.size(), expected.size());
    for (const Safetensor& tensor : weights->tensors) {
      const absl::Span<const float> floats = tensor.data.floats();
      EXPECT_EQ(std::vector<float>(floats.begin(), floats.end()), expected[tensor.name]) << tensor.name;
    }
  }
  std::filesystem::remove_all(dir);
}

TEST(KerasSpectral, RefusesWhatItCannotWrap) {
  EXPECT_THAT(ErrorOf(Model(R"("power_iterations": 1)")), HasSubstr("layer: missing"));
  EXPECT_THAT(ErrorOf(Model(Wrapped("Mine", R"("name": "m")"))),
              HasSubstr("Mine is not supported within another layer"));
  EXPECT_THAT(ErrorOf(Model(Wrapped("Dense", R"("name": "d", "units": 5)", R"(, "power_iterations": "many")"))),
              HasSubstr("power_iterations: \"many\" is not a whole number"));
  const absl::StatusOr<KerasModel> pooled =
      ReadKerasModel(Model(Wrapped("MaxPooling2D", R"("name": "p", "pool_size": 2)")));
  const absl::Status status = pooled.ok() ? Graph::Build(pooled->model).status() : pooled.status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("it has neither a kernel nor embeddings"));
}

}  // namespace
}  // namespace cairn
