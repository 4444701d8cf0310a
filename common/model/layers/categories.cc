#include "common/model/layers/categories.h"

#include "absl/strings/ascii.h"
#include "common/base/lacks.h"
#include "common/model/limits.h"
#include "common/model/text_inputs.h"

namespace cairn::layers {
namespace {

constexpr char kKerasFormat[] = "; write safetensors or Keras' format";

}  // namespace

absl::Status NeedCategories(const char* field, int64_t value, const char* example) {
  CAIRN_RETURN_IF_ERROR(NeedPositive(field, value, example));
  if (value <= kEmbeddingIdsMax) return absl::OkStatus();
  return Bad(field, " ", value, " is too large; the limit is ", kEmbeddingIdsMax);
}

v1::EncodingMode ReadMode(KerasConfig& c) {
  c.Only("sparse", false, "leave it out: the output is the same");
  std::string name;
  c.Text("output_mode", &name);
  if (name.empty()) return v1::ENCODING_MODE_UNSPECIFIED;
  v1::EncodingMode mode = v1::ENCODING_MODE_UNSPECIFIED;
  if (!v1::EncodingMode_Parse(absl::AsciiStrToUpper(name), &mode) || mode == v1::ENCODING_MODE_UNSPECIFIED) {
    c.Refuse(
        absl::StrCat("output_mode: ", ShownText(name), " is not known; use int, one_hot, multi_hot, count or tf_idf"));
  }
  return mode;
}

void WriteMode(v1::EncodingMode mode, KerasWriter& c) {
  c["output_mode"] = absl::AsciiStrToLower(v1::EncodingMode_Name(mode));
  c["sparse"] = false;
  if (mode == v1::INT) c["dtype"] = "int64";
}

void WriteOnnxCode(const Node& node, const std::string& indices, OnnxWriter& w) {
  const CategoryCode code = CategoryCodeOf(node.layer);
  if (code.mode == v1::INT) {
    const std::string y = w.Op("Cast", {indices});
    w.Int("to", onnx::TensorProto::FLOAT);
    return w.SetOutput(node, y, Channels::kLast);
  }
  std::string y = w.Op("OneHot", {indices, w.Whole("depth", {code.depth}), w.Numbers("off_on", {2}, {0, 1})});
  w.Int("axis", -1);
  if (code.mode == v1::ONE_HOT) return w.SetOutput(node, w.Reshape(y, node.output), Channels::kLast);
  if (code.mode == v1::MULTI_HOT) {
    y = w.Op("ReduceMax", {y});
    w.Ints("axes", {1});
  } else {
    y = w.Op("ReduceSum", {y, w.Whole("axes", {1})});
  }
  w.Int("keepdims", 0);
  if (code.mode == v1::TF_IDF) y = w.Op("Mul", {y, w.Numbers("idf_weights", {code.depth}, code.weights)});
  w.SetOutput(node, y, Channels::kLast);
}

absl::Status CheckCategoriesOnnx(const Node& node) {
  if (OfTexts(node)) return Lacks("it takes texts, which ONNX's operators do not", kKerasFormat);
  if (node.kind == LayerKind::kHashing || node.kind == LayerKind::kHashedCrossing) {
    return Lacks("ONNX has no operator for its hashes", kKerasFormat);
  }
  if (node.kind == LayerKind::kIntegerLookup && node.layer.integer_lookup().num_oov_indices() == 0) {
    return Lacks("num_oov_indices is 0, and ONNX's operators cannot refuse a token that is not in the vocabulary",
                 kKerasFormat);
  }
  return absl::OkStatus();
}

}  // namespace cairn::layers
