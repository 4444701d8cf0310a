// Hashing: the bin of an integer or a text, by its hash.
#include "absl/strings/numbers.h"
#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"
#include "common/model/text_inputs.h"

namespace cairn::layers {
namespace {

absl::Status InferHashing(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Hashing* layer = node->layer.mutable_hashing();
  CAIRN_RETURN_IF_ERROR(NeedCategories("num_bins", layer->num_bins(), "64"));
  if (layer->salt_size() > 2) return Bad("salt has ", layer->salt_size(), " numbers; give one or two, or leave it out");
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::INT, v1::ONE_HOT, v1::MULTI_HOT, v1::COUNT}, layer));
  CAIRN_ASSIGN_OR_RETURN(node->output, CategoryCodeOf(node->layer).Of(inputs[0]));
  return absl::OkStatus();
}

void ReadSalt(KerasConfig& c, v1::Hashing* layer) {
  const Json* salt = c.Take("salt");
  if (salt == nullptr) return;
  const Json list = salt->is_array() ? *salt : Json::array({*salt});
  for (const Json& number : list) {
    const bool whole = number.is_number_unsigned() || (number.is_number_integer() && number.get<int64_t>() >= 0);
    if (!whole) return c.Refuse(absl::StrCat("salt: ", ShownJson(number), " is not a whole number from 0"));
    layer->add_salt(number.get<uint64_t>());
  }
  if (list.empty() || list.size() > 2) c.Refuse(absl::StrCat("salt: ", ShownJson(*salt), " is not one or two numbers"));
}

void ReadHashing(KerasConfig& c, v1::Layer* layer) {
  v1::Hashing* hashing = layer->mutable_hashing();
  int32_t bins = 0;
  c.Int("num_bins", &bins);
  hashing->set_num_bins(bins);
  if (const Json* mask = c.Take("mask_value")) {
    if (!mask->is_string() && !mask->is_number_integer()) {
      return c.Refuse(absl::StrCat("mask_value: ", ShownJson(*mask), " is neither text nor a whole number"));
    }
    hashing->set_mask_value(mask->is_string() ? mask->get<std::string>() : mask->dump());
  }
  ReadSalt(c, hashing);
  hashing->set_output_mode(ReadMode(c));
}

void WriteHashing(const Node& node, KerasWriter& c) {
  const v1::Hashing& layer = node.layer.hashing();
  c["num_bins"] = layer.num_bins();
  c["salt"] = nullptr;
  if (layer.salt_size() > 0) c["salt"] = OrderedJson::array({layer.salt(0), layer.salt(layer.salt_size() - 1)});
  c["mask_value"] = nullptr;
  int64_t mask = 0;
  if (layer.has_mask_value() && OfTexts(node)) c["mask_value"] = layer.mask_value();
  if (layer.has_mask_value() && !OfTexts(node) && absl::SimpleAtoi(layer.mask_value(), &mask)) c["mask_value"] = mask;
  WriteMode(layer.output_mode(), c);
}

constexpr KerasClass kKeras[] = {{"Hashing", ReadHashing}};

}  // namespace

constinit const LayerType kHashingLayer = {
    .kind = LayerKind::kHashing,
    .field = v1::Layer::kHashing,
    .name = "hashing",
    .infer = InferHashing,
    .keras = kKeras,
    .write_keras = WriteHashing,
    .write_onnx = [](const Node&, OnnxWriter&) {},  // rejected by CheckCategoriesOnnx
};

}  // namespace cairn::layers
