#include "common/model/text_inputs.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "common/base/bad.h"
#include "common/model/article.h"
#include "common/model/graph_builder.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

bool IsText(const Node& node) { return node.kind == LayerKind::kInput && OfTexts(node); }

bool MayTakeTexts(LayerKind kind) {
  return kind == LayerKind::kStringLookup || kind == LayerKind::kTextVectorization || kind == LayerKind::kHashing ||
         kind == LayerKind::kHashedCrossing;
}

// What is left of a node when texts are gone.
enum class Left { kNothing, kInput, kWhole };

// An input that only layers of texts take goes with them: a number that a HashedCrossing crosses with a text.
std::vector<Left> WhatIsLeft(const Graph& graph) {
  const auto& nodes = graph.nodes();
  std::vector<bool> used(nodes.size(), false);
  for (const int id : graph.outputs()) used[static_cast<size_t>(id)] = true;
  for (const Node& node : nodes) {
    for (const int input : node.inputs)
      used[static_cast<size_t>(input)] = used[static_cast<size_t>(input)] || !OfTexts(node);
  }
  std::vector<Left> left;
  for (const Node& node : nodes) {
    const bool input = node.kind == LayerKind::kInput;
    left.push_back(input && (OfTexts(node) || !used[static_cast<size_t>(node.id)]) ? Left::kNothing
                   : OfTexts(node)                                                 ? Left::kInput
                                                                                   : Left::kWhole);
  }
  return left;
}

void BecomeInput(Node* node) {
  v1::Layer layer;
  layer.set_name(node->name);
  for (const int64_t side : node->output) layer.mutable_input()->add_shape(static_cast<int32_t>(side));
  node->layer = std::move(layer);
  node->kind = LayerKind::kInput;
  node->inputs.clear();
  node->shares = -1;
  node->input_offset = 0;
}

// Of an input of shape [], one text without an axis, Keras' lookups and hashes give one number without an axis, which
// no layer takes here.
absl::Status CheckScalars(const std::vector<Node>& nodes, const Node& node) {
  const v1::Layer& layer = node.layer;  // fields of other kinds have their defaults
  const v1::TextVectorization& text = layer.text_vectorization();
  const bool whole = layer.has_text_vectorization() && text.split() == v1::TextVectorization::NO_SPLIT;
  const bool fits =
      layer.has_text_vectorization()
          ? !whole || (text.ngrams().empty() && (text.has_output_sequence_length() || text.output_mode() > v1::INT))
          : layer.string_lookup().output_mode() == v1::ONE_HOT || layer.hashing().output_mode() == v1::ONE_HOT ||
                layer.hashed_crossing().output_mode() == v1::ONE_HOT;
  for (const int id : node.inputs) {
    const Node& input = nodes[static_cast<size_t>(id)];
    if (fits || !IsText(input) || !input.layer.input().shape().empty()) continue;
    return Bad("its input \"", input.name, "\" has the shape []; give it [1]");
  }
  return absl::OkStatus();
}

}  // namespace

bool TakesTexts(const std::vector<Node>& nodes, const Node& node) {
  if (node.kind == LayerKind::kInput) return node.layer.input().text();
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](int input) { return IsText(nodes[static_cast<size_t>(input)]); });
}

absl::Status CheckTexts(const std::vector<Node>& nodes, const Node& node) {
  if (node.kind == LayerKind::kInput) return absl::OkStatus();
  if (OfTexts(node)) CAIRN_RETURN_IF_ERROR(CheckScalars(nodes, node));
  const std::string article = WithArticle(LayerTypeName(node.kind));
  const bool only = node.kind == LayerKind::kStringLookup || node.kind == LayerKind::kTextVectorization;
  for (const int id : node.inputs) {
    const Node& input = nodes[static_cast<size_t>(id)];
    if (IsText(input) && !MayTakeTexts(node.kind)) {
      return Bad("its input \"", input.name, "\" is texts, and ", article,
                 " takes numbers; put a string_lookup, a text_vectorization or a hashing between them");
    }
    if (only && !IsText(input)) {
      return Bad("its input \"", input.name, "\" is numbers, and ", article,
                 " takes texts; use an input { text: true }, or for whole numbers an integer_lookup");
    }
    int64_t mask = 0;
    const v1::Hashing& hashing = node.layer.hashing();  // the default one of other layers
    if (!OfTexts(node) && hashing.has_mask_value() && !absl::SimpleAtoi(hashing.mask_value(), &mask)) {
      return Bad("mask_value ", absl::CEscape(hashing.mask_value().substr(0, kKerasShownBytesMax)),
                 " is not a whole number, and the layer's input is numbers; use one such as \"0\", or leave it out");
    }
    if (OfTexts(node) && input.kind != LayerKind::kInput) {
      return Bad("its input \"", input.name, "\" is a layer's, but texts are crossed with the model's inputs alone; ",
                 "name an input");
    }
  }
  return absl::OkStatus();
}

bool HasTexts(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) { return OfTexts(node); });
}

Graph GraphBuilder::WithoutTexts(const Graph& graph) {
  const std::vector<Left> left = WhatIsLeft(graph);
  Graph computed;
  computed.variables_ = graph.variables_;
  computed.space_size_ = graph.space_size_;
  std::vector<int> ids(graph.nodes_.size(), -1);
  const auto renumber = [&](int* id) {
    if (*id >= 0) *id = ids[static_cast<size_t>(*id)];
  };
  int64_t offset = 0;
  for (const Node& node : graph.nodes_) {
    const auto at = static_cast<size_t>(node.id);
    if (left[at] == Left::kNothing) continue;
    Node& copy = computed.nodes_.emplace_back(node);
    if (left[at] == Left::kInput) BecomeInput(&copy);
    ids[at] = copy.id = static_cast<int>(computed.nodes_.size()) - 1;
    for (int& input : copy.inputs) renumber(&input);
    renumber(&copy.shares);
    renumber(&copy.mask);
    if (copy.shares < 0) {
      for (const int v : copy.variables) computed.variables_[static_cast<size_t>(v)].node = copy.id;
    } else if (computed.nodes_[static_cast<size_t>(copy.shares)].kind == LayerKind::kInput) {
      copy.shares = -1;  // a hashing of texts, and here of numbers; it has no variables
    }
    if (copy.kind != LayerKind::kInput) continue;
    copy.input_offset = offset;
    offset += NumElements(copy.output);
    computed.inputs_.push_back(copy.id);
  }
  computed.outputs_ = graph.outputs_;
  for (int& id : computed.outputs_) renumber(&id);
  return computed;
}

Graph ComputedGraph(const Graph& graph) { return HasTexts(graph) ? GraphBuilder::WithoutTexts(graph) : graph; }

}  // namespace cairn
