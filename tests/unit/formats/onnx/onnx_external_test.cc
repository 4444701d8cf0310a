// Goal: weights beside an ONNX model are read where they lie below its folder, with the bytes that their shapes need;
// whatever a file says to lead elsewhere or to take more is refused by the tensor's name.
#include "common/formats/onnx/onnx_external.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/formats/onnx/onnx_import.h"
#include "common/formats/onnx_file.h"
#include "tests/unit/formats/onnx/small_model.h"

namespace cairn {
namespace {

using onnx::ModelProto;
using onnx::TensorProto;

class OnnxExternal : public testing::Test {
 protected:
  OnnxExternal() {
    char name[] = "/tmp/cairn_onnx_XXXXXX";
    CAIRN_CHECK(mkdtemp(name) != nullptr, "a temporary directory");
    dir_ = name;
    std::filesystem::create_directories(dir_ / "model/deep");
  }
  ~OnnxExternal() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
  }

  // Tensor 1 ("b1", four floats) lies there.
  static ModelProto With(const std::string& location, const std::string& offset = "", const std::string& length = "") {
    ModelProto model = Small();
    TensorProto* tensor = Tensor(1, &model);
    tensor->clear_float_data();
    tensor->set_data_location(TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& value) {
      if (value.empty()) return;
      tensor->add_external_data()->set_key(key);
      tensor->mutable_external_data(tensor->external_data_size() - 1)->set_value(value);
    };
    add("location", location);
    add("offset", offset);
    add("length", length);
    return model;
  }

  std::string Error(ModelProto model) const {
    return std::string(LoadOnnxExternalData((dir_ / "model").string(), &model).message());
  }

  std::filesystem::path dir_;
};

const std::string& Numbers() {
  static const std::string bytes = [] {
    const float numbers[] = {1, 2, 3, 4};
    return std::string(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  }();
  return bytes;
}

TEST_F(OnnxExternal, IsReadWhereItLies) {
  Write("model/deep/w.bin", "12345678" + Numbers() + "beyond");
  for (const char* length : {"", "16"}) {
    ModelProto model = With("deep/w.bin", "8", length);
    ASSERT_EQ(LoadOnnxExternalData((dir_ / "model").string(), &model), absl::OkStatus());
    EXPECT_EQ(Tensor(1, &model)->raw_data(), Numbers());
    EXPECT_TRUE(ImportOnnx(model).ok());
  }
  // And so of a file on disk.
  std::ofstream(dir_ / "model/m.onnx", std::ios::binary) << With("./deep/w.bin", "8").SerializeAsString();
  const absl::StatusOr<OnnxFile> file = ReadOnnxFile((dir_ / "model/m.onnx").string());
  ASSERT_TRUE(file.ok()) << file.status();
  bool found = false;
  for (const Safetensor& tensor : file->weights.tensors) {
    if (tensor.shape == Shape{4} && tensor.data.floats()[3] == 4.0f) found = true;
  }
  EXPECT_TRUE(found);
}

TEST_F(OnnxExternal, LeadsNowhereElse) {
  Write("outside.bin", Numbers());
  Write("model/w.bin", Numbers());
  std::filesystem::create_symlink(dir_ / "outside.bin", dir_ / "model/link.bin");
  std::filesystem::create_directory_symlink(dir_, dir_ / "model/up");
  const std::string below = "is not a file below the model's folder; put it there";
  EXPECT_EQ(Error(With("../outside.bin")), absl::StrCat("tensor \"b1\": \"../outside.bin\" ", below));
  EXPECT_EQ(Error(With("deep/../../outside.bin")), absl::StrCat("tensor \"b1\": \"deep/../../outside.bin\" ", below));
  EXPECT_EQ(Error(With("/etc/hostname")), absl::StrCat("tensor \"b1\": \"/etc/hostname\" ", below));
  EXPECT_EQ(Error(With("..\\outside.bin")), absl::StrCat("tensor \"b1\": \"..\\\\outside.bin\" ", below));
  EXPECT_EQ(Error(With(std::string("w.bin\0x", 7))), absl::StrCat("tensor \"b1\": \"w.bin\\000x\" ", below));
  EXPECT_EQ(Error(With("link.bin")),
            "tensor \"b1\": \"link.bin\" is a symbolic link, which is not followed; put the file there");
  EXPECT_NE(Error(With("up/outside.bin")), "");
  EXPECT_EQ(Error(With("deep")), "tensor \"b1\": \"deep\" is not a file");
  EXPECT_NE(Error(With("none.bin")).find("tensor \"b1\": none.bin: its numbers cannot be opened"), std::string::npos)
      << Error(With("none.bin"));
  EXPECT_EQ(Error(With("")), "tensor \"b1\": external_data names no file");
}

TEST_F(OnnxExternal, GivesWhatTheShapeNeeds) {
  Write("model/w.bin", Numbers());
  EXPECT_EQ(Error(With("w.bin")), "");
  EXPECT_EQ(Error(With("w.bin", "0", "12")), "tensor \"b1\": shape [4] needs 16 bytes, external_data says 12");
  EXPECT_EQ(Error(With("w.bin", "1")), "tensor \"b1\": bytes 1 to 1 + 16 of \"w.bin\", which has 16");
  EXPECT_EQ(Error(With("w.bin", "18446744073709551615")),
            "tensor \"b1\": bytes 18446744073709551615 to 18446744073709551615 + 16 of \"w.bin\", which has 16");
  EXPECT_EQ(Error(With("w.bin", "-1")), "tensor \"b1\": its offset \"-1\" is not a whole number from 0");
  EXPECT_EQ(Error(With("w.bin", "0", "x")), "tensor \"b1\": its length \"x\" is not a whole number from 0");
  ModelProto model = With("w.bin");
  Tensor(1, &model)->set_dims(0, int64_t{1} << 62);
  EXPECT_EQ(Error(model), "tensor \"b1\": it has more than 68719476736 numbers");
  model = With("w.bin");
  Tensor(1, &model)->add_external_data()->set_key("key");
  EXPECT_EQ(Error(model), "tensor \"b1\": external_data has a key \"key\", which is not known");
  // Two tensors of the same bytes: a small file would fill any memory.
  model = With("w.bin");
  *model.mutable_graph()->add_initializer() = *Tensor(1, &model);
  EXPECT_EQ(Error(model), "tensor \"b1\": more is taken of \"w.bin\" than it has: tensors share its bytes");
}

}  // namespace
}  // namespace cairn
