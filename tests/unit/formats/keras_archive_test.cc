// Goal: a .keras archive is read as the model and the weights that were written; a damaged one is refused with what is
// wrong. tests/integration/keras_files.py checks Keras' layout by reading an archive on its own.
#include "common/formats/keras_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/formats/hdf5_file.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_weights.h"
#include "common/formats/zip_file.h"
#include "common/model/initializer.h"
#include "common/model/keras/keras_config.h"
#include "common/model/ready_made/ready_made.h"
#include "tests/unit/formats/every_layer.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;

class KerasArchive : public testing::Test {
 protected:
  KerasArchive() {
    char name[] = "/tmp/cairn_keras_XXXXXX";
    CAIRN_CHECK(mkdtemp(name) != nullptr, "a temporary directory");
    dir_ = name;
  }
  ~KerasArchive() override { std::filesystem::remove_all(dir_); }
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }
  std::filesystem::path dir_;
};

// Values that are all different, as far as float32 goes.
Buffer Numbered(const Graph& graph) {
  Buffer space = Buffer::Zeros(static_cast<size_t>(graph.space_size()) * sizeof(float));
  for (int64_t i = 0; i < graph.space_size(); ++i)
    space.mutable_floats()[static_cast<size_t>(i)] = static_cast<float>(i) * 0.25f - 7;
  return space;
}

Graph Build(const v1::Model& model) {
  absl::StatusOr<Graph> graph = Graph::Build(model);
  CAIRN_CHECK(graph.ok(), std::string(graph.status().message()));
  return *std::move(graph);
}

Graph ReadyMade(const std::string& text) { return Build(MakeReadyMade(FromText<v1::ReadyMade>(text)).value()); }

void ExpectWeights(const SafetensorsFile& file, const Graph& graph, const Buffer& space) {
  std::map<std::string, const Safetensor*> tensors;
  for (const Safetensor& t : file.tensors) tensors[t.name] = &t;
  ASSERT_EQ(tensors.size(), graph.variables().size());
  for (const Variable& v : graph.variables()) {
    SCOPED_TRACE(v.name);
    ASSERT_TRUE(tensors.contains(v.name));
    EXPECT_EQ(tensors[v.name]->shape, v.shape);
    EXPECT_EQ(tensors[v.name]->data.floats(),
              space.floats().subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size)));
  }
}

TEST_F(KerasArchive, ComesBackAsItWas) {
  const v1::Model model = FromText<v1::Model>(EveryLayer());
  const Graph graph = Build(model);
  const Buffer space = Numbered(graph);
  ASSERT_EQ(WriteKerasArchive(Path("m.keras"), "every", graph, space.floats()), absl::OkStatus());
  const absl::StatusOr<std::string> config = ReadKerasArchiveConfig(Path("m.keras"));
  ASSERT_TRUE(config.ok()) << config.status();
  const absl::StatusOr<KerasModel> read = ReadKerasModel(*config);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.name(), "every");
  // Layers stand in Keras' order; by name they are the same, every default filled in.
  const Graph again = Build(read->model);
  ASSERT_EQ(again.nodes().size(), graph.nodes().size());
  std::map<std::string, std::string> layers;
  for (const Node& node : again.nodes()) layers[node.name] = node.layer.DebugString();
  for (const Node& node : graph.nodes()) EXPECT_EQ(layers[node.name], node.layer.DebugString());

  const absl::StatusOr<SafetensorsFile> weights = ReadKerasArchiveWeights(Path("m.keras"));
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectWeights(*weights, graph, space);

  ASSERT_EQ(WriteKerasWeightsFile(Path("m.weights.h5"), graph, space.floats()), absl::OkStatus());
  const absl::StatusOr<SafetensorsFile> alone = ReadKerasWeightsFile(Path("m.weights.h5"), graph);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ExpectWeights(*alone, graph, space);
  // Nothing else is in the folder.
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_)) files += entry.exists();
  EXPECT_EQ(files, 2u);
}

// What Keras 3.3 and 3.9 wrote as config.json when they saved the archive of this model that they had loaded: layers,
// in Keras' order, and options come back as they were.
TEST_F(KerasArchive, IsUnderstoodByKeras) {
  const char* source = std::getenv("CAIRN_SOURCE");
  ASSERT_NE(source, nullptr) << "run by ctest, or set CAIRN_SOURCE to the root of the tree";
  const Graph graph = Build(FromText<v1::Model>(EveryLayer()));
  const std::vector<std::string> paths = KerasLayerPaths(graph);
  for (const char* file : {"keras_3_3_every_layer.json", "keras_3_9_every_layer.json"}) {
    SCOPED_TRACE(file);
    std::stringstream text;
    text << std::ifstream(absl::StrCat(source, "/tests/unit/formats/keras/", file)).rdbuf();
    const absl::StatusOr<KerasModel> read = ReadKerasModel(text.str());
    ASSERT_TRUE(read.ok()) << read.status();
    const Graph again = Build(read->model);
    ASSERT_EQ(again.nodes().size(), graph.nodes().size());
    const std::vector<int> order = KerasOrder(graph);
    for (size_t i = 0; i < order.size(); ++i) {
      const Node& node = graph.nodes()[static_cast<size_t>(order[i])];
      EXPECT_EQ(again.nodes()[i].layer.DebugString(), node.layer.DebugString());
      EXPECT_EQ(read->weight_paths[i], paths[static_cast<size_t>(node.id)]);
    }
  }
}

TEST_F(KerasArchive, HoldsTheReadyMadeModels) {
  for (const ReadyMadeInfo& info : ReadyMadeModels()) {
    if (info.name == std::string("vgg16") || info.name == std::string("vit_base")) continue;  // half a gigabyte each
    SCOPED_TRACE(info.name);
    const char* const shape = info.input_shape.size() == 3 ? "[64, 64, 3]" : "[12]";
    const Graph graph = ReadyMade(absl::StrCat("name: '", info.name, "' input_shape: ", shape, " classes: 4"));
    const Buffer space = Numbered(graph);
    ASSERT_EQ(WriteKerasArchive(Path("m.keras"), info.name, graph, space.floats()), absl::OkStatus());
    const absl::StatusOr<SafetensorsFile> weights = ReadKerasArchiveWeights(Path("m.keras"));
    ASSERT_TRUE(weights.ok()) << weights.status();
    ExpectWeights(*weights, graph, space);
  }
}

// Keras orders the layers of ResNet50 by depth: of a block's two branches the shorter one comes late (see the summary
// of keras.applications.ResNet50).
TEST_F(KerasArchive, OrdersLayersAsKerasDoes) {
  const Graph graph = ReadyMade("name: 'resnet50'");
  std::vector<std::string> names;
  for (const int id : KerasOrder(graph)) names.push_back(graph.nodes()[static_cast<size_t>(id)].name);
  names.resize(19);
  EXPECT_THAT(names,
              ElementsAre("input_layer", "conv1_pad", "conv1_conv", "conv1_bn", "conv1_relu", "pool1_pad", "pool1_pool",
                          "conv2_block1_1_conv", "conv2_block1_1_bn", "conv2_block1_1_relu", "conv2_block1_2_conv",
                          "conv2_block1_2_bn", "conv2_block1_2_relu", "conv2_block1_0_conv", "conv2_block1_3_conv",
                          "conv2_block1_0_bn", "conv2_block1_3_bn", "conv2_block1_add", "conv2_block1_out"));
  const std::vector<std::string> paths = KerasLayerPaths(graph);
  EXPECT_EQ(paths[7], "layers/conv2d_3") << graph.nodes()[7].name;  // conv2_block1_0_conv
}

TEST_F(KerasArchive, SequentialModelsHaveNoGroupForTheirInput) {
  EXPECT_THAT(
      KerasLayerPaths(ReadyMade("name: 'mlp'")),
      ElementsAre("", "layers/rescaling", "layers/flatten", "layers/dense", "layers/dropout", "layers/dense_1"));
}

// Keras has no '/' in names; Keras 2 had.
TEST_F(KerasArchive, NamesAreAsKerasTakesThem) {
  const Graph graph = Build(FromText<v1::Model>(
      "layers { name: 'a/in' input { shape: [4] } } layers { name: 'b c' dense { units: 2 } } layers { name: 'd/e' "
      "inputs: ['b c', 'b c'] add {} }"));
  const KerasModel read = ReadKerasModel(KerasModelJson("m", graph).value()).value();
  EXPECT_EQ(read.model.layers(0).name(), "a.in");
  EXPECT_EQ(read.model.layers(1).name(), "b c");
  EXPECT_EQ(read.model.layers(2).name(), "d.e");
  const Graph twice = Build(FromText<v1::Model>(
      "layers { input { shape: [4] } } layers { name: 'a/b' flatten {} } layers { name: 'a.b' dense { units: 2 } }"));
  EXPECT_EQ(KerasModelJson("m", twice).status().message(),
            "layer \"a.b\": Keras' format has no '/' in names, and \"a.b\" is another layer; export safetensors");
}

// What was read as layers is written as layers, whatever the kind of model.
TEST_F(KerasArchive, AugmentationComesBack) {
  constexpr char kSteps[] = R"(
    augmentation { random_flip { mode: HORIZONTAL } }
    augmentation { random_rotation { factor: [-0.125, 0.25] fill_mode: FILL_CONSTANT fill_value: 3 } }
    augmentation { random_zoom { height_factor: 0.25 width_factor: [0, 0.5] fill_mode: WRAP } }
    augmentation { random_translation { height_factor: 0.25 width_factor: 0.5 fill_mode: NEAREST_PIXEL } }
    augmentation { random_shear { x_factor: [0, 0.25] y_factor: 0.5 } }
    augmentation { random_perspective { factor: 0.5 scale: 0.25 nearest: true fill_value: 2 } }
    augmentation { random_brightness { factor: 0.25 } } augmentation { random_contrast { factor: [0.25, 0.5] } }
    augmentation { random_saturation { factor: [0.25, 0.75] } } augmentation { random_hue { factor: 0.25 } }
    augmentation { random_grayscale { factor: 0.25 } } augmentation { random_invert { factor: 0.25 } }
    augmentation { random_color_jitter { brightness_factor: 0.5 hue_factor: [0, 0.25] } }
    augmentation { random_color_degeneration { factor: 0.5 } } augmentation { random_posterization { factor: [2, 5] } }
    augmentation { random_sharpness { factor: 0.25 } }
    augmentation { random_gaussian_blur { factor: 0.5 kernel_size: [3, 5] sigma: [0.5, 1] } }
    augmentation { random_erasing { factor: 0.5 scale: [0.125, 0.25] fill_value: 7 } }
    augmentation { equalization { bins: 64 } }
    augmentation { solarization { addition_factor: 0.25 threshold_factor: [0.25, 0.5] } }
    augmentation { rand_augment { num_ops: 3 factor: 0.25 } } augmentation { random_flip { mode: VERTICAL } })";
  const v1::Data data = FromText<v1::Data>(kSteps);
  for (const char* layers : {"layers { name: 'in' input { shape: [8, 6, 3] } } layers { name: 'f' flatten {} }",
                             "layers { name: 'in' input { shape: [8, 6, 3] } } layers { name: 'c' inputs: ['in', 'in'] "
                             "add {} } layers { name: 'random_flip' inputs: ['c', 'in'] multiply {} }"}) {
    const Graph graph = Build(FromText<v1::Model>(layers));
    const absl::StatusOr<KerasModel> read = ReadKerasModel(KerasModelJson("m", graph, &data).value());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->data.DebugString(), data.DebugString());
    const Graph back = Build(read->model);
    EXPECT_EQ(back.input_shape(), graph.input_shape());
    EXPECT_EQ(back.nodes().size(), graph.nodes().size());
  }
  // What Keras has no layer for is omitted.
  const v1::Data own = FromText<v1::Data>(
      "augmentation { cutout { size: 2 } } augmentation { auto_contrast {} } "
      "augmentation { random_crop { height: 8 width: 6 } } image_height: 12 image_width: 9");
  const Graph graph = Build(FromText<v1::Model>("layers { input { shape: [8, 6, 3] } } layers { flatten {} }"));
  EXPECT_EQ(KerasModelJson("m", graph, &own).value(), KerasModelJson("m", graph).value());
}

TEST_F(KerasArchive, SaysWhatKerasCannotHold) {
  const Graph graph = Build(FromText<v1::Model>(
      "layers { input { shape: [4] } } layers { operation { kind: SQUARED_DIFFERENCE constant: 1 } }"));
  EXPECT_EQ(WriteKerasArchive(Path("m.keras"), "m", graph, Numbered(graph).floats()).message(),
            "layer \"operation\": Keras 3 has no SQUARED_DIFFERENCE; use SUBTRACT and SQUARE, or export safetensors");
  EXPECT_FALSE(std::filesystem::exists(Path("m.keras")));
}

// The version of Keras that wrote a model decides what its calls mean (keras_dialect.h).
TEST_F(KerasArchive, TheModelComesWithItsVersion) {
  const auto read = [&](const std::string& metadata) {
    const std::string config = R"({"class_name": "Functional", "config": {"x": 0.1}})";
    CAIRN_CHECK(WriteZip(Path("v.keras"), {{"metadata.json", metadata, ""}, {"config.json", config, ""}}).ok(), "zip");
    return Json::parse(ReadKerasArchiveConfig(Path("v.keras")).value());
  };
  Json wanted = {{"class_name", "Functional"}, {"config", {{"x", 0.1}}}};
  for (const char* metadata : {"", "[]", "{}", R"({"keras_version": 3})"})
    EXPECT_EQ(read(metadata), wanted) << metadata;
  wanted["keras_version"] = "3.12.0";
  EXPECT_EQ(read(R"({"keras_version": "3.12.0"})"), wanted);
}

// ---- damaged files ----

class DamagedArchive : public KerasArchive {
 protected:
  DamagedArchive() : graph_(ReadyMade("name: 'mlp' input_shape: [4] classes: 3")), space_(Numbered(graph_)) {
    CAIRN_CHECK(WriteKerasArchive(Path("m.keras"), "mlp", graph_, space_.floats()).ok(), "an archive");
    std::stringstream text;
    text << std::ifstream(Path("m.keras"), std::ios::binary).rdbuf();
    bytes_ = text.str();
  }

  // The error of reading these bytes, without the path.
  std::string ErrorOf(const std::string& bytes) {
    std::ofstream(Path("bad.keras"), std::ios::binary) << bytes;
    return Error(ReadKerasArchiveWeights(Path("bad.keras")).status());
  }
  std::string ErrorOf(const std::vector<ZipMember>& members) {
    CAIRN_CHECK(WriteZip(Path("bad.keras"), members).ok(), "an archive");
    return Error(ReadKerasArchiveWeights(Path("bad.keras")).status());
  }
  std::string Error(const absl::Status& status) const {
    return absl::StrReplaceAll(status.message(), {{dir_.string() + "/", ""}});
  }
  std::string Config() const { return ReadKerasArchiveConfig(Path("m.keras")).value(); }
  // A file of weights written by `write`.
  template <typename Write>
  std::string Weights(const Write& write) {
    {
      std::filesystem::remove(Path("w.h5"));
      auto writer = Hdf5Writer::Create(Path("w.h5")).value();
      write(*writer);
      CAIRN_CHECK(writer->Close().ok(), "a file of weights");
    }
    return Path("w.h5");
  }

  const Graph graph_;
  const Buffer space_;
  std::string bytes_;
};

TEST_F(DamagedArchive, IsNamedWithWhatIsWrong) {
  EXPECT_EQ(Error(ReadKerasArchiveWeights(Path("none.keras")).status()), "none.keras: there is no such file");
  EXPECT_EQ(Error(ReadKerasArchiveWeights(dir_.string()).status()).substr(dir_.string().size()),
            ": is a folder, not a file");
  EXPECT_EQ(ErrorOf("nothing of the kind"), "bad.keras: not a zip archive, or a damaged one: Not a zip archive");
  EXPECT_EQ(ErrorOf(bytes_.substr(0, bytes_.size() / 2)),
            "bad.keras: not a zip archive, or a damaged one: Not a zip archive");
  EXPECT_EQ(ErrorOf(std::string()), "bad.keras: not a zip archive, or a damaged one: Not a zip archive");
  // One bit of the weights, which libhdf5 would not notice.
  std::string altered = bytes_;
  altered[altered.size() / 2] ^= 1;
  EXPECT_EQ(ErrorOf(altered), "bad.keras: model.weights.h5: CRC error");
  EXPECT_EQ(ErrorOf({{"metadata.json", "{}", ""}}), "bad.keras: config.json is not in the archive");
  EXPECT_EQ(ErrorOf({{"config.json", "{\"class_name\": ", ""}}),
            "bad.keras: config.json: not JSON; give what model.to_json() returned, whole");
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}}), "bad.keras: model.weights.h5 is not in the archive");
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}, {"model.weights.h5", "no weights", ""}}),
            "bad.keras: not an HDF5 file, or a damaged one");
  const std::string empty = Weights([](Hdf5Writer& w) { CAIRN_CHECK(w.AddGroup("vars", "m").ok(), ""); });
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}, {"model.weights.h5", "", empty}}),
            "variable \"dense/kernel\" is not in bad.keras: there is no \"layers/dense/vars\"; was it saved from the "
            "same model?");
  const std::string one = Weights([](Hdf5Writer& w) {
    CAIRN_CHECK(w.AddGroup("layers/dense/vars", "m").ok(), "");
    CAIRN_CHECK(w.AddArray("layers/dense/vars", "0", {2}, {1.0f, 2.0f}).ok(), "");
  });
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}, {"model.weights.h5", "", one}}),
            "layer \"dense\": it has 2 variables, \"layers/dense/vars\" in bad.keras has 1; was it saved from the same "
            "model?");
  const std::string shape = Weights([](Hdf5Writer& w) {
    CAIRN_CHECK(w.AddGroup("layers/dense/vars", "m").ok(), "");
    CAIRN_CHECK(w.AddArray("layers/dense/vars", "0", {2}, {1.0f, 2.0f}).ok(), "");
    CAIRN_CHECK(w.AddArray("layers/dense/vars", "1", {2}, {1.0f, 2.0f}).ok(), "");
  });
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}, {"model.weights.h5", "", shape}}),
            "variable \"dense/kernel\": bad.keras: \"layers/dense/vars/0\": shape [2], [4,128] in the model");
  // Members where an array or a group is expected.
  const std::string group = Weights([](Hdf5Writer& w) {
    CAIRN_CHECK(w.AddGroup("layers/dense/vars/0", "m").ok(), "");
    CAIRN_CHECK(w.AddGroup("layers/dense/vars/1", "m").ok(), "");
  });
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}, {"model.weights.h5", "", group}}),
            "variable \"dense/kernel\": bad.keras: \"layers/dense/vars/0\" is not an array");
}

// The sizes that a member claims, in its own header and in the list at the end.
TEST_F(DamagedArchive, IsNoLargerThanItCanBe) {
  std::string altered = bytes_;
  const std::string huge = "\xff\xff\xff\x7f";
  for (const auto& [header, name, size] : {std::tuple{"PK\3\4", 30, 22}, std::tuple{"PK\1\2", 46, 24}}) {
    size_t at = 0;
    do {
      at = altered.find(header, at + 1);
      ASSERT_NE(at, std::string::npos);
    } while (altered.compare(at + static_cast<size_t>(name), 16, "model.weights.h5") != 0);
    altered.replace(at + static_cast<size_t>(size), 4, huge);
  }
  EXPECT_EQ(ErrorOf(altered), "bad.keras: model.weights.h5: its size cannot be");
  // More than the model can have, an optimizer's variables included.
  const size_t most = static_cast<size_t>(graph_.space_size()) * 32 + (size_t{64} << 20);
  EXPECT_EQ(ErrorOf({{"config.json", Config(), ""}, {"model.weights.h5", std::string(most + 1, 'x'), ""}}),
            absl::StrCat("bad.keras: model.weights.h5: ", most + 1, " bytes; at most ", most, " are read"));
}

TEST_F(DamagedArchive, DoesNotHarmWhereItIsCutOrAltered) {
  for (size_t cut = 0; cut < bytes_.size(); cut += bytes_.size() / 64 + 1) {
    EXPECT_NE(ErrorOf(bytes_.substr(0, cut)), "");
  }
}

}  // namespace
}  // namespace cairn
