// Goal: event files hold what was put in, as TensorFlow's summary operations would write it, and a torn end costs only
// what was torn. (An independent reader of the bytes is in tests/integration/tensorboard_files.py.)
#include "common/formats/tensorboard.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

std::string Path(const char* name) { return absl::StrCat(testing::TempDir(), "/", name, "-", ::getpid()); }

tensorboard::Event Scalar(int64_t step, const std::string& tag, float value) {
  tensorboard::Event event;
  event.set_step(step);
  event.set_wall_time(100);
  AddScalar(tag, value, event.mutable_summary());
  return event;
}

std::vector<double> RowsOf(const tensorboard::Tensor& tensor) {
  std::vector<double> rows(tensor.tensor_content().size() / sizeof(double));
  std::memcpy(rows.data(), tensor.tensor_content().data(), tensor.tensor_content().size());
  return rows;
}

TEST(TensorBoard, ScalarsComeBack) {
  const std::string path = Path("scalars");
  {
    EventFile file = EventFile::Create(path, 99).value();
    ASSERT_TRUE(file.Add({Scalar(0, "epoch_loss", 0.5f)}).ok());
    ASSERT_TRUE(file.Add({Scalar(1, "epoch_loss", 0.25f), Scalar(1, "epoch_accuracy", 0.75f)}).ok());
  }
  EXPECT_FALSE(EventFile::Create(path, 99).ok()) << "a file that is there is not written over";
  const auto events = ReadEvents(path).value();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 99);
  EXPECT_EQ(events[2].step(), 1);
  const tensorboard::Summary::Value& value = events[3].summary().value(0);
  EXPECT_EQ(value.tag(), "epoch_accuracy");
  EXPECT_EQ(value.tensor().float_val(0), 0.75f);
  EXPECT_EQ(value.tensor().dtype(), 1);
  EXPECT_EQ(value.metadata().plugin_data().plugin_name(), "scalars");
  std::filesystem::remove(path);
}

TEST(TensorBoard, ATornEndCostsWhatWasTorn) {
  const std::string path = Path("torn");
  std::vector<uintmax_t> sizes;
  {
    EventFile file = EventFile::Create(path, 1).value();
    sizes.push_back(std::filesystem::file_size(path));  // of the version
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(file.Add({Scalar(i, "epoch_loss", 1)}).ok());
      sizes.push_back(std::filesystem::file_size(path));
    }
  }
  for (uintmax_t size = sizes[2] - 1; size > 0; --size) {
    std::filesystem::resize_file(path, size);
    const size_t want = size >= sizes[1] ? 2 : size >= sizes[0] ? 1 : 0;
    ASSERT_EQ(ReadEvents(path).value().size(), want) << size;
  }
  EXPECT_FALSE(ReadEvents(path + "-none").ok());
  std::filesystem::remove(path);
}

// On a full disk a writer tries again and again, each time with another name.
TEST(TensorBoard, AFileThatCannotBeBegunIsRemoved) {
  const std::string path = Path("full");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  for (rlim_t fits : {0, 10}) {
    const rlimit full{fits, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    const absl::Status status = EventFile::Create(path, 99).status();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(EventFile::Create(path, 99).ok());
  std::filesystem::remove(path);
}

TEST(TensorBoard, AnAlteredByteEndsIt) {
  const std::string path = Path("altered");
  {
    EventFile file = EventFile::Create(path, 1).value();
    ASSERT_TRUE(file.Add({Scalar(0, "epoch_loss", 1), Scalar(1, "epoch_loss", 1)}).ok());
  }
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  }
  for (size_t i = 0; i < bytes.size(); i += 3) {
    std::string altered = bytes;
    altered[i] = static_cast<char>(altered[i] ^ 0x10);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << altered;
    EXPECT_LT(ReadEvents(path).value().size(), 3u) << i;
  }
  std::filesystem::remove(path);
}

TEST(TensorBoard, HistogramsCountEveryFiniteValue) {
  std::vector<float> values;
  for (int i = 0; i <= 60; ++i) values.push_back(static_cast<float>(i) / 60);
  values.push_back(NAN);
  values.push_back(INFINITY);
  tensorboard::Summary summary;
  AddHistogram("dense/kernel/histogram", values, 30, &summary);
  const tensorboard::Tensor& tensor = summary.value(0).tensor();
  EXPECT_EQ(tensor.tensor_shape().dim(0).size(), 30);
  EXPECT_EQ(tensor.tensor_shape().dim(1).size(), 3);
  const std::vector<double> rows = RowsOf(tensor);
  ASSERT_EQ(rows.size(), 90u);
  double count = 0;
  for (size_t i = 0; i < 90; i += 3) {
    EXPECT_NEAR(rows[i], static_cast<double>(i / 3) / 30, 1e-9);
    EXPECT_NEAR(rows[i + 1], static_cast<double>(i / 3 + 1) / 30, 1e-9);
    count += rows[i + 2];
  }
  EXPECT_EQ(count, 61);
  EXPECT_EQ(summary.value(0).metadata().plugin_data().plugin_name(), "histograms");

  tensorboard::Summary same;
  AddHistogram("b", std::vector<float>(5, 2.0f), 30, &same);
  EXPECT_THAT(RowsOf(same.value(0).tensor()), testing::ElementsAre(1.5, 2.5, 5));
  tensorboard::Summary none;
  AddHistogram("c", {}, 30, &none);
  EXPECT_EQ(none.value(0).tensor().tensor_shape().dim(0).size(), 0);
}

TEST(TensorBoard, TheGraphHasANodeALayer) {
  v1::Model model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "layers { name: 'in' input { shape: 4 } } layers { name: 'a' dense { units: 3 } } layers { name: 'b' dense { "
      "units: 3 } inputs: 'in' } "
      "layers { name: 'sum' add { } inputs: 'a' inputs: 'b' }",
      &model));
  const tensorboard::GraphDef def = GraphOf(Graph::Build(model).value());
  ASSERT_EQ(def.node_size(), 4);
  EXPECT_EQ(def.node(1).name(), "a");
  EXPECT_EQ(def.node(1).op(), "dense");
  EXPECT_EQ(def.node(1).attr().at("parameters").i(), 15);
  EXPECT_THAT(def.node(3).input(), testing::ElementsAre("a", "b"));
  EXPECT_EQ(def.node(3).attr().at("shape").shape().dim(1).size(), 3);
}

}  // namespace
}  // namespace cairn
